"""Imported by the process that forks commands (tests/helpers/forked.py): what a command loads to check a run."""

from __future__ import annotations

from importlib import import_module

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.system.source_commit import loaded_commit

for name in (
    "fedrun.cli.application",
    "fedrun.cli.sweep_job",
    "fedrun.config.composition_errors",
    "fedrun.sweeps.callback",
    "fedrun.sweeps.grid_sweeper",
    "fedrun.sweeps.parallel_launcher",
):
    import_module(name)
Plugins.instance()  # looks through all modules of Hydra's plugins
OverridesParser.create().parse_overrides(["seed=0,1", "a/b@c.d=[e, {f: 1.0, g: null}]", "~h", "+i='j'"])  # learns to
build_experiment(compose())
loaded_commit()  # git looks through all files
