"""Hydra takes sweepers from modules of this namespace package only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf

from fedrun.grids import Grid, Job, jobs

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction


class Grids(Sweeper):
    """Hydra's sweeper ``grids``: the jobs of several grids, one after the other, each job once.

    Args:
        params: what all grids have in common.
        grids: what each has besides.
    """

    config: DictConfig
    launcher: Launcher

    def __init__(self, params: Grid, grids: Sequence[Grid]) -> None:
        self.params = params
        self.grids = grids

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.loader = hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """Launch all jobs; what the user asked for on the command line comes in ``arguments``."""
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        return [self.launch(jobs(self.params, self.grids, arguments, self.loader), 0)]

    def launch(self, jobs: Sequence[Job], first: int) -> Sequence[JobReturn]:
        """Run some jobs, which are numbered from ``first`` on."""
        returns = self.launcher.launch(jobs, initial_job_idx=first)
        for one in returns:
            _ = one.return_value  # raises what the job raised
        return returns
