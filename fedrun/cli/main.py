"""The ``fedrun`` command as the shell starts it: signals are handled before anything else is imported.

Exit status: 0 done; 1 a run could not continue, or a job of a sweep failed; 2 the input cannot be used (one line says
why); 130 interrupted, 143 terminated (a checkpoint was written).
"""

from __future__ import annotations

import os
import signal
import sys

from fedrun.system.signals import TERMINATING, Stop, describe_stop


def main() -> None:
    """The ``fedrun`` command."""
    stop = Stop()
    if "RANK" not in os.environ:  # ranks stop together, or not at all: see fedrun.execution.ranks
        stop.handle(signal.SIGINT, *TERMINATING)
    try:
        from fedrun.cli.application import run

        status = run(sys.argv[1:])
        stop.end()
    except KeyboardInterrupt as error:
        stop.end()
        word, status = describe_stop(error)
        print(f"fedrun: {word}; the same command (without overwrite=true) continues", file=sys.stderr)
    sys.exit(status)
