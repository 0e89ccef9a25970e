"""Register this package's sweeper and launchers with Hydra."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from hydra.core.plugins import Plugins

from fedrun.sweeps.cluster_launcher import Cluster
from fedrun.sweeps.grid_sweeper import Grids
from fedrun.sweeps.parallel_launcher import Parallel

PARENT, NAME = "hydra_plugins", "fedrun"
"""Hydra accepts and imports plugins below ``hydra_plugins`` only, so they become members of a module there."""


def register_plugins() -> None:
    """Register ``hydra_plugins.fedrun.Grids``, ``.Parallel`` and ``.Cluster``, without a folder of that name."""
    try:
        parent = import_module(PARENT)  # the namespace package of other plugins, such as Optuna's sweeper
    except ModuleNotFoundError:
        parent = sys.modules[PARENT] = ModuleType(PARENT)
        parent.__path__ = []  # Hydra looks for further plugins below it
    module = sys.modules[f"{PARENT}.{NAME}"] = ModuleType(f"{PARENT}.{NAME}")
    setattr(parent, NAME, module)
    for plugin in (Grids, Parallel, Cluster):
        named = type(plugin.__name__, (plugin,), {"__module__": module.__name__})
        setattr(module, plugin.__name__, named)
        Plugins.instance().register(named)
