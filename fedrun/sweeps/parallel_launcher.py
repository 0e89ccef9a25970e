"""Hydra's launcher of parallel sweeps: every job in its own process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.utils import JobReturn, run_job, setup_globals
from omegaconf import open_dict

from fedrun.sweeps.launcher import SweepLauncher

if TYPE_CHECKING:
    from omegaconf import DictConfig

NEEDED = ("fedrun.runs.run", "matplotlib.backends.backend_agg", "matplotlib.figure", "sklearn.utils.validation")
"""Modules that jobs need and that load slowly: they are loaded once, before the processes are forked."""


class Parallel(SweepLauncher):
    """Runs the jobs of a sweep in forked processes, several at once.

    Jobs with ``hardware.device=cuda`` are distributed over the GPUs: each sees one of them.

    Args:
        jobs: number of jobs at once; None: one for each GPU with ``hardware.device=cuda``, one with ``cuda:N``,
            otherwise the number of cores divided by the threads of a job (1 if the user has not set them).
    """

    def __init__(self, jobs: int | None) -> None:
        self.jobs = jobs

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs, numbered from ``initial_job_idx``; return their results in order."""
        # Hydra loads this module whenever it starts
        from fedrun.execution.hardware import openmp_threads
        from fedrun.sweeps.callback import say
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
        hardware = self.hardware(job_overrides)
        gpus = visible_gpus() if any(each.device == "cuda" for each in hardware) else ()
        usual = min(
            len(gpus) if each.device.startswith("cuda") else cores() // (each.threads or openmp_threads() or 1)
            for each in hardware
        )
        at_once = min(len(job_overrides), self.jobs or max(1, usual))

        def job(index: int, slot: int) -> JobReturn | Exception:
            try:
                gpu = gpus[slot % len(gpus)] if gpus else None
                return self.job(initial_job_idx + index, job_overrides[index], at_once, gpu)
            except Exception as error:  # its configuration could not be composed
                return error

        def lost(index: int, how: str) -> JobReturn:
            return self.lost(initial_job_idx + index, job_overrides[index], how)

        left = JobsLeft(sweep, len(job_overrides))

        def progress(index: int) -> None:
            say(left.ended(initial_job_idx + index), sys.stdout)

        results: list[JobReturn] = []
        for result in run_jobs(job, len(job_overrides), at_once, lost, progress):
            if isinstance(result, Exception):
                raise result
            results.append(result)
        return results

    def hardware(self, jobs: Sequence[Sequence[str]]) -> list[DictConfig]:
        """The jobs' different settings of ``hardware``."""
        different = {tuple(key for key in job if key.startswith("hardware")): job for job in jobs}
        return [self.configured(0, job).hardware if own else self.config.hardware for own, job in different.items()]

    def job(self, number: int, overrides: Sequence[str], at_once: int, gpu: str | None) -> JobReturn:
        """Run one job in this process, on this GPU if its device is ``cuda``."""
        config = self.configured(number, overrides)
        if gpu is not None and config.hardware.device == "cuda":
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        with open_dict(config):
            config.hydra.launcher.jobs = at_once
        return run_job(
            self.task_function, config, "hydra.sweep.dir", "hydra.sweep.subdir", hydra_context=self.hydra_context
        )


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    They are counted in a forked process, because a process that has initialised CUDA cannot fork others that use it.
    """
    from fedrun.sweeps.job_processes import run_jobs

    (count,) = run_jobs(lambda number, slot: _gpu_count(), 1, 1, lambda number, how: 0)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(count)) if named is None else (name.strip() for name in named.split(","))
    return tuple(names)[:count]


def _gpu_count() -> int:
    import torch

    return torch.cuda.device_count()
