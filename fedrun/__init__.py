"""Federated-learning experiments: composed, resumable, reproducible.

A run with all its files, as the ``fedrun`` command makes it::

    import fedrun

    experiment = fedrun.build_experiment(fedrun.compose(["strategy=turbosvm", "rounds=2", "tracking=none"]))
    summary = fedrun.run(experiment)  # the files are in experiment.folder

The same rounds one by one, without a file::

    simulation = fedrun.Simulation(experiment)
    state = simulation.initial()
    while state.round < experiment.rounds:
        state, metrics = simulation.advance(state)
        print(state.round, simulation.test(state)["test/accuracy"])

Results of earlier runs (data frames need pandas, the extra ``fedrun[results]``)::

    run = fedrun.load(summary["folder"])  # run.config, run.summary, run.metrics, run.clients
    classes = run.predict(run.dataset.inputs[:10])
    table = fedrun.load_all("outputs")  # a row per run
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedrun.system.errors import InputError, RunError
from fedrun.system.openmp import limit_spinning
from fedrun.system.version import __version__

if TYPE_CHECKING:
    from fedrun.config.build import option
    from fedrun.config.composed import compose
    from fedrun.data.datasets.in_memory import InMemory
    from fedrun.experiment.experiment import build_experiment
    from fedrun.report.load import load, load_all
    from fedrun.runs.run import run
    from fedrun.simulation.simulation import Simulation

__all__ = [
    "InMemory",
    "InputError",
    "RunError",
    "Simulation",
    "__version__",
    "build_experiment",
    "compose",
    "load",
    "load_all",
    "option",
    "run",
]

MODULES = {
    "InMemory": "fedrun.data.datasets.in_memory",
    "Simulation": "fedrun.simulation.simulation",
    "build_experiment": "fedrun.experiment.experiment",
    "compose": "fedrun.config.composed",
    "load": "fedrun.report.load",
    "load_all": "fedrun.report.load",
    "option": "fedrun.config.build",
    "run": "fedrun.runs.run",
}
"""The modules of names that are imported when they are first used, so that ``import fedrun`` is fast."""

limit_spinning()  # must be called before PyTorch is loaded


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'fedrun' has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
