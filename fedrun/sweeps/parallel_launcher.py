"""Hydra's launcher of parallel sweeps: every job in its own process."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from omegaconf import open_dict

if TYPE_CHECKING:
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

NEEDED = ("fedrun.runs.run", "matplotlib.backends.backend_agg", "matplotlib.figure", "sklearn.utils.validation")
"""Modules that jobs need and that load slowly: they are loaded once, before the processes are forked."""


class Parallel(Launcher):
    """Runs the jobs of a sweep in forked processes, several at once.

    Jobs with ``hardware.device=cuda`` are distributed over the GPUs: each sees one of them.

    Args:
        jobs: number of jobs at once; None: one for each GPU if the sweep's device is ``cuda``, otherwise one for each
            of the machine's cores.
    """

    config: DictConfig
    hydra_context: HydraContext
    task_function: TaskFunction

    def __init__(self, jobs: int | None) -> None:
        self.jobs = jobs

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs, numbered from ``initial_job_idx``; return their results in order."""
        # Hydra loads this module whenever it starts
        from fedrun.sweeps.callback import failed, say
        from fedrun.sweeps.gpus import visible_gpus
        from fedrun.sweeps.job_processes import run_jobs
        from fedrun.sweeps.jobs_left import JobsLeft
        from fedrun.system.cores import cores
        from fedrun.system.source_commit import loaded_commit

        for name in NEEDED:
            import_module(name)
        loaded_commit()  # the forked jobs run the code of this process
        gc.freeze()  # a collection in a job's process would touch, and so copy, the memory shared with this one
        setup_globals()
        sweep = Path(self.config.hydra.sweep.dir)
        sweep.mkdir(parents=True, exist_ok=True)
        gpus = visible_gpus() if self.config.hardware.device == "cuda" else ()
        at_once = min(len(job_overrides), self.jobs or len(gpus) or cores())

        def job(index: int, slot: int) -> JobReturn | Exception:
            try:
                gpu = gpus[slot % len(gpus)] if gpus else None
                return self.job(initial_job_idx + index, job_overrides[index], at_once, gpu)
            except Exception as error:  # its configuration could not be composed
                return error

        def lost(index: int, how: str) -> JobReturn:
            number, overrides = initial_job_idx + index, filter_overrides(job_overrides[index])
            failed(number, sweep / str(number), overrides, how)
            no_result = JobReturn(overrides=overrides, status=JobStatus.COMPLETED)
            no_result.return_value = math.nan
            return no_result

        left = JobsLeft(sweep, len(job_overrides))

        def progress(index: int) -> None:
            say(left.ended(initial_job_idx + index), sys.stdout)

        results: list[JobReturn] = []
        for result in run_jobs(job, len(job_overrides), at_once, lost, progress):
            if isinstance(result, Exception):
                raise result
            results.append(result)
        return results

    def job(self, number: int, overrides: Sequence[str], at_once: int, gpu: str | None) -> JobReturn:
        """Run one job in this process, on this GPU if its device is ``cuda``."""
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        if gpu is not None and config.hardware.device == "cuda":
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        with open_dict(config):
            config.hydra.job.id = f"{config.hydra.job.name}_{number}"
            config.hydra.job.num = number
            config.hydra.launcher.jobs = at_once
        return run_job(
            self.task_function, config, "hydra.sweep.dir", "hydra.sweep.subdir", hydra_context=self.hydra_context
        )
