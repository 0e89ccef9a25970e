"""What fedrun's launchers of sweeps have in common: a job's configuration, and the result of a lost job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.utils import JobReturn, JobStatus, filter_overrides
from hydra.plugins.launcher import Launcher
from omegaconf import open_dict

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class SweepLauncher(Launcher):
    """A launcher whose jobs run in other processes."""

    config: DictConfig
    hydra_context: HydraContext
    task_function: TaskFunction

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def configured(self, number: int, overrides: Sequence[str]) -> DictConfig:
        """The configuration of a job, with its number in the sweep."""
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = f"{config.hydra.job.name}_{number}"
            config.hydra.job.num = number
        return config

    def lost(self, number: int, overrides: Sequence[str], reason: str) -> JobReturn:
        """Report a job without a result; it returns None, so that the sweep continues."""
        from fedrun.config.overrides import without_implied
        from fedrun.sweeps.callback import record_failure

        written = filter_overrides(without_implied(overrides))
        record_failure(number, Path(self.config.hydra.sweep.dir) / str(number), written, reason)
        return JobReturn(overrides=written, status=JobStatus.COMPLETED)
