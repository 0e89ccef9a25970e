"""The GPUs among which parallel jobs of a sweep are distributed."""

from __future__ import annotations

import os

from fedrun.sweeps.job_processes import run_jobs


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    They are counted in a forked process, because a process that has initialised CUDA cannot fork others that use it.
    """
    (count,) = run_jobs(lambda number, slot: _gpu_count(), 1, 1, lambda number, how: 0)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = map(str, range(count)) if named is None else (name.strip() for name in named.split(","))
    return tuple(names)[:count]


def _gpu_count() -> int:
    import torch

    return torch.cuda.device_count()
