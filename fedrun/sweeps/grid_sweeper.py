"""Hydra's sweeper ``grids``: an experiment's jobs at one of its scales, or a search for settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedrun.system.errors import defects
from fedrun.system.writing import writing

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.types import HydraContext, TaskFunction

    from fedrun.config.grids import Grid, Job


class Grids(Sweeper):
    """Launches the jobs of several grids, one after the other, each job once; or searches for settings in stages.

    Its arguments are the keys below ``hydra.sweeper``.

    Args:
        params: values that all grids have in common.
        grids: further values of each grid.
        scales: for each scale: the selected values, and others that it sets (see :mod:`fedrun.config.grids`).
        stages: grids of tuned values, each at the best values of the stages before; none: nothing is tuned.
        metric: the metric by which the best values are chosen.
        table: how the report reads a paper's table from the runs; empty if there is none. The sweep ignores it.
        figures: the figures that the report draws from the runs. The sweep ignores them.
    """

    config: DictConfig
    launcher: Launcher

    def __init__(
        self,
        params: Grid,
        grids: Sequence[Grid],
        scales: Mapping[str, Any],
        stages: Sequence[Grid],
        metric: str,
        table: Mapping[str, Any],
        figures: Mapping[str, Any],
    ) -> None:
        self.metric = metric

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.loader: ConfigLoader = hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.folder = Path(config.hydra.sweep.dir)

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all jobs; ``arguments`` are those of the command line."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            OmegaConf.save(self.config, self.folder / "multirun.yaml")
        with defects():
            self._launch_all(arguments)

    def _launch_all(self, arguments: list[str]) -> None:
        """Launch all jobs."""
        # Hydra loads this module whenever it starts; the rest is loaded when a sweep starts.
        from fedrun.config.composed import HPARAMS
        from fedrun.runs.outcome import outcomes
        from fedrun.sweeps import search

        sweep_jobs, searched = search.planned(self.config, self.loader)
        if not searched:
            self.launch(sweep_jobs, 0)
            return
        arms, launched = search.arms(sweep_jobs), 0
        for stage in searched:
            trials = search.trials(arms, stage, self.knows)
            stage_jobs = [job for trial in trials for job in trial.jobs]
            self.launch(stage_jobs, launched)
            arms = search.after_stage(arms, trials, outcomes(self.folder)[launched:], self.metric)
            launched += len(stage_jobs)
        files = search.suggest(arms, self.metric, self.command(arguments), self.folder / HPARAMS)
        for file, arm in files.items():
            print(f"chosen  {search.choice(arm, self.metric)}\nhparams {file}")
        for use in dict.fromkeys(self.use(file.stem, "-".join(arm.run or ())) for file, arm in files.items()):
            print(f"to use  {use}")

    def use(self, option: str, usual: str) -> str:
        """How later runs take what a search has chosen.

        Args:
            option: the option of ``hparams``.
            usual: the one that a run with the same setting and strategy takes without a choice.
        """
        from fedrun.config.composed import HPARAMS, STRATEGY_HPARAMS
        from fedrun.config.options import config_dir_option

        if (own := config_dir_option()) is not None:  # a command has one folder of options
            return shlex.join(["cp", "-r", str(self.folder / HPARAMS), str(own)])
        choice = [] if option == usual else [f"{STRATEGY_HPARAMS}={option}"]
        return shlex.join(["fedrun", "--config-dir", str(self.folder), *choice, "..."])

    def command(self, arguments: Sequence[str]) -> str:
        """The command line of this sweep, for a shell."""
        from fedrun.config.options import config_dir_option
        from fedrun.config.overrides import typed, without_implied

        folder = config_dir_option()
        further = [] if folder is None else ["--config-dir", str(folder)]
        words = [*further, *without_implied(arguments), *typed(self.config.hydra.overrides.hydra)]
        return shlex.join(["fedrun", "-m", *(argument for argument in words if argument != "hydra.mode=MULTIRUN")])

    def launch(self, jobs: Sequence[Job], first: int) -> None:
        """Run some jobs, numbered from ``first``."""
        if jobs:
            for one in self.launcher.launch(jobs, initial_job_idx=first):
                if one.status == JobStatus.FAILED:
                    raise one._return_value  # the property return_value would print a line of its own

    def knows(self, job: Job, key: str) -> bool:
        """Whether a job's configuration has a key."""
        from fedrun.config.dotted_keys import NO_VALUE, value_at

        composed = self.loader.load_configuration(self.config.hydra.job.config_name, job, RunMode.RUN)
        return value_at(composed, key, NO_VALUE) is not NO_VALUE
