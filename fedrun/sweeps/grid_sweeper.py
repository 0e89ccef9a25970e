"""Hydra takes sweepers from modules of this namespace package only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.types import HydraContext, TaskFunction

    from fedrun.sweeps.grids import Grid, Job


class Grids(Sweeper):
    """Hydra's sweeper ``grids``: the jobs of several grids, one after the other, each job once; or a search in stages.

    Args:
        params: what all grids have in common.
        grids: what each has besides.
        stages: grids of what is tuned, each at the best values of the ones before; none: nothing is tuned.
        metric: what tells the best values.
    """

    config: DictConfig
    launcher: Launcher

    def __init__(self, params: Grid, grids: Sequence[Grid], stages: Sequence[Grid], metric: str) -> None:
        self.params = params
        self.grids = grids
        self.stages = stages
        self.metric = metric

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.loader: ConfigLoader = hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.folder = Path(config.hydra.sweep.dir)

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all jobs; what the user asked for on the command line comes in ``arguments``."""
        # Hydra loads this module whenever it starts; what sweeps need is loaded when one is asked for.
        from fedrun.sweeps import search as tuning
        from fedrun.sweeps.grids import jobs
        from fedrun.sweeps.outcome import outcomes
        from fedrun.system.errors import InputError

        self.folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, self.folder / "multirun.yaml")
        made = jobs(self.params, self.grids, tuning.untuned(arguments, self.stages), self.loader)
        if not self.stages:
            self.launch(made, 0)
            return
        arms, launched = tuning.arms(made), 0
        for stage in self.stages:
            tried = tuning.trials(arms, tuning.asked(stage, arguments), self.knows)
            stage_jobs = [job for trial in tried for job in trial.jobs]
            self.launch(stage_jobs, launched)
            tuning.settle(tried, outcomes(self.folder)[launched:], self.metric)
            launched += len(stage_jobs)
        if not launched:
            keys = ", ".join(key for stage in self.stages for key in stage)
            raise InputError(
                f"hydra.sweeper.stages: no job has any of the keys {keys}; fedrun --cfg job shows all keys"
            )
        tuning.suggest(arms, self.metric, self.command(arguments), self.folder / tuning.RECIPES)

    def command(self, arguments: Sequence[str]) -> str:
        """The command line of this sweep, for a shell."""
        asked = [*arguments, *self.config.hydra.overrides.hydra]
        return shlex.join(["fedrun", "-m", *(argument for argument in asked if argument != "hydra.mode=MULTIRUN")])

    def launch(self, jobs: Sequence[Job], first: int) -> None:
        """Run some jobs, which are numbered from ``first`` on."""
        if jobs:
            for one in self.launcher.launch(jobs, initial_job_idx=first):
                _ = one.return_value  # raises what the job raised

    def knows(self, job: Job, key: str) -> bool:
        """Whether a job's configuration has a key."""
        from fedrun.sweeps.search import known_keys

        composed = self.loader.load_configuration(self.config.hydra.job.config_name, job, RunMode.RUN)
        return known_keys(composed, key)
