"""``dying.py RANK ROUND ARGUMENTS...``: the fedrun command, except that this rank dies without warning when it begins
this round, unless torchrun has started it again.
"""

from __future__ import annotations

import os
import sys

import plotless  # noqa: F401
from forked import arrange_death

from fedrun.cli.main import main

rank, number, *arguments = sys.argv[1:]
if os.environ["RANK"] == rank and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    arrange_death("fedrun.simulation.simulation:Simulation", "advance", int(number), 0)
sys.argv[1:] = arguments
main()
