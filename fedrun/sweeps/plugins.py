"""Make Hydra know the sweeper and the launcher of this package."""

from __future__ import annotations

from hydra.core.plugins import Plugins

from fedrun.sweeps.grid_sweeper import Grids
from fedrun.sweeps.parallel_launcher import Parallel

NAMESPACE = "hydra_plugins.fedrun"
"""The module name under which the plugins are registered: Hydra accepts names below ``hydra_plugins`` only."""


def register_plugins() -> None:
    """Register both, as ``hydra_plugins.fedrun.Grids`` and ``hydra_plugins.fedrun.Parallel``."""
    for plugin in (Grids, Parallel):
        Plugins.instance().register(type(plugin.__name__, (plugin,), {"__module__": NAMESPACE}))
