"""Where and how a run computes. Nothing here can change a result beyond rounding."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.execution.allocator import keep_freed_memory
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.system.errors import InputError


def cores() -> int:
    """How many of the machine's cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@config_class
class Hardware:
    """The machine's part of a configuration.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        executor: ``in_process``: clients one after the other; ``vectorized``: side by side, for models without batch
            normalisation, recurrence and (but in perceptrons on a CPU in float32) dropout (others are trained in
            process, with a warning); ``auto``: each in two of the first four rounds, then the faster one; in process
            where the other cannot work. The clock decides, so that a repeated run may differ by rounding.
        threads: CPU threads of PyTorch, at most 1024; None: all cores, shared evenly among a sweep's parallel jobs.
        deterministic: on a GPU, use deterministic kernels only, so that a repeated run is identical.
        client_memory_gb: main memory for what clients remember between rounds, GiB; the rest is memory-mapped in the
            run's folder.
        distributed: spread the run over the processes that torchrun has started. With ``cuda`` each takes the GPU of
            its number on its machine.
    """

    device: str
    executor: Literal["in_process", "vectorized", "auto"]
    threads: Annotated[int, Ge(1), Le(1024)] | None
    deterministic: bool
    client_memory_gb: Annotated[float, Ge(0)]
    distributed: bool

    def prepare(self, parallel_jobs: int, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
        """Apply the settings to this process and return the device.

        Args:
            parallel_jobs: how many runs share the machine.
            ranks: that carry out this run together; those on one machine share it, too.

        Raises:
            InputError: there is no such device.
        """
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise InputError(f"hardware.device={self.device}: no such device; allowed: cpu, cuda, cuda:N") from None
        if device.type not in ("cpu", "cuda"):
            raise InputError(f"hardware.device={self.device}: not supported; allowed: cpu, cuda, cuda:N")
        if device.type == "cuda" and not 0 <= (device.index or 0) < torch.cuda.device_count():  # 999 overflows to -25
            found = torch.cuda.device_count()
            raise InputError(f"hardware.device={self.device}: PyTorch sees {found} CUDA devices here; try hardware=cpu")
        if device.type == "cuda" and ranks.count > 1:
            device = self._own_gpu(device, ranks)
        if device.type == "cpu":
            keep_freed_memory()
        torch.set_num_threads(self.threads or max(1, cores() // (parallel_jobs * ranks.local_count)))
        if device.type == "cuda" and self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=True)
        return device

    def _own_gpu(self, device: torch.device, ranks: Ranks) -> torch.device:
        """The GPU of one of several ranks: NCCL wants one for each."""
        found = torch.cuda.device_count()
        if device.index is not None or ranks.local_count > found:
            raise InputError(
                f"hardware.device={self.device}: {ranks.local_count} processes were started on a machine with {found} "
                "CUDA devices, each wants one of its own; allowed: hardware.device=cuda, and at most as many processes"
            )
        own = torch.device("cuda", ranks.local)
        torch.cuda.set_device(own)
        return own
