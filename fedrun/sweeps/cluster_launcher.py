"""Hydra's launcher of sweeps on a cluster: every job is a task of a SLURM job array, submitted by submitit."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydra.core.utils import JobReturn, run_job, setup_globals
from omegaconf import open_dict

from fedrun.sweeps.launcher import SweepLauncher

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig
    from submitit.helpers import DelayedSubmission

LOGS = "logs"
"""The folder of the jobs' scripts and logs, in the sweep's folder."""


@dataclass(frozen=True)
class ClusterJob:
    """One job of a sweep, which is sent to a node.

    Attributes:
        context: Hydra's context.
        task: the function that a job calls.
        config: config of the job.
    """

    context: HydraContext
    task: TaskFunction
    config: DictConfig

    def __call__(self) -> JobReturn:
        """Run the job on the node."""
        setup_globals()
        return run_job(self.task, self.config, "hydra.sweep.dir", "hydra.sweep.subdir", hydra_context=self.context)

    def checkpoint(self) -> DelayedSubmission:
        """Submit the job again at its time limit: it continues from the run's checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Cluster(SweepLauncher):
    """Submits the jobs of a sweep as one array, and waits for them. A job that fails does not stop the others.

    Args:
        cluster: ``slurm``, or ``local``: processes of this machine, to test a sweep.
        minutes: time limit of a job; one that reaches it is submitted again and continues.
        at_once: largest number of jobs at once.
        parameters: submitit's further parameters, such as ``cpus_per_task``, ``mem_gb``, ``slurm_partition``.
    """

    def __init__(
        self, cluster: Literal["slurm", "local"], minutes: int, at_once: int, parameters: Mapping[str, Any]
    ) -> None:
        self.cluster = cluster
        self.minutes = minutes
        self.at_once = at_once
        self.parameters = parameters

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs, numbered from ``initial_job_idx``; return their results in order.

        Raises:
            InputError: submitit is not installed, or rejects the parameters or the cluster, with its own message.
        """
        # Hydra loads this module whenever it starts
        from fedrun.sweeps.callback import say
        from fedrun.sweeps.jobs_left import JobsLeft
        from fedrun.system.errors import InputError, one_line
        from fedrun.system.extras import require_package

        require_package("submitit", "cluster", "hydra/launcher=cluster")
        import submitit

        sweep = Path(self.config.hydra.sweep.dir).absolute()
        logs = sweep / LOGS
        logs.mkdir(parents=True, exist_ok=True)
        configs = [self.configured(initial_job_idx + n, list(job)) for n, job in enumerate(job_overrides)]
        work = [ClusterJob(self.hydra_context, self.task_function, config) for config in configs]
        try:
            executor = submitit.AutoExecutor(folder=logs, cluster=self.cluster)
            parallelism = {"slurm_array_parallelism": self.at_once} if self.cluster == "slurm" else {}
            name = f"fedrun-{self.config.name}".replace("/", "-")
            executor.update_parameters(name=name, timeout_min=self.minutes, **parallelism, **self.parameters)
            with executor.batch():
                jobs = [executor.submit(job) for job in work]
        except Exception as error:  # submitit raises many kinds: no srun, an unknown parameter, an error of sbatch
            raise InputError(f"hydra/launcher=cluster: {one_line(str(error))}") from error
        for number, job in enumerate(jobs, start=initial_job_idx):
            say(f"== {number}: job {job.job_id} ({name}), log {job.paths.stdout}", sys.stdout)
        left, results, waiting = JobsLeft(sweep, len(jobs)), dict[int, JobReturn](), dict(enumerate(jobs))
        while waiting:
            for index in [index for index, job in waiting.items() if job.done()]:
                job, number = waiting.pop(index), initial_job_idx + index
                try:
                    results[index] = job.result()
                    _ = results[index].return_value
                except Exception as error:  # the job's process was lost, or its configuration could not be composed
                    reason = f"{last_line(error)}; log {job.paths.stderr}"
                    results[index] = self.lost(number, job_overrides[index], reason)
                say(left.ended(number), sys.stdout)
            time.sleep(0.2 if self.cluster == "local" else 2.0)
        return [results[index] for index in range(len(jobs))]

    def configured(self, number: int, overrides: Sequence[str]) -> DictConfig:
        """The configuration of a job, composed here so that a node needs no options of the user's."""
        config = super().configured(number, overrides)
        with open_dict(config):
            config.hydra.sweep.dir = str(self.config.hydra.sweep.dir)  # its time of day is this process's
        return config


def last_line(error: Exception) -> str:
    """The last line of an error's message: submitit's messages contain the whole log, below a line of dashes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return lines[-1] if lines else type(error).__name__
