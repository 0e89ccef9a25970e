"""Where and how a run computes. These settings change results by rounding only."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.execution.allocator import keep_freed_memory
from fedrun.execution.launched_ranks import launched
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.system.cores import cores
from fedrun.system.errors import InputError

SMALL_STEP = 16_000_000
"""Multiply-adds of a forward pass over the batches of a step below which a second thread costs more than it saves."""


@config_class
class Hardware:
    """The machine's part of a configuration.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        executor: ``in_process``: one client at a time; ``vectorized``: many clients at once, for models without batch
            normalisation, recurrence and (except for perceptrons on a CPU in float32) dropout (others are trained in
            process, with a warning). None: ``vectorized`` for perceptrons (on a CPU: without large layers) and at least
            four clients per round, otherwise ``in_process``
            (:func:`fedrun.execution.executor_choice.trains_side_by_side`).
        threads: CPU threads of PyTorch, at most 1024; None: ``OMP_NUM_THREADS`` if it is set; otherwise 1 for networks
            with less than :data:`SMALL_STEP` per step, and for others all cores, shared evenly among the processes of
            the run or the parallel jobs of the sweep.
        processes: processes that share the clients of a round. An int: the ``fedrun`` command starts them. ``auto``:
            those that torchrun has started, otherwise the command decides by the cores and by the work of a round
            (:mod:`fedrun.simulation.process_count`). With ``cuda`` each takes the GPU of its number on its machine.
        deterministic: on a GPU, use deterministic kernels where PyTorch has them, so that a repeated run is identical;
            PyTorch warns of the others.
        cuda_graphs: on a GPU, record SGD steps and forward passes as CUDA graphs, which start all of a step's kernels
            at once. fedrun does not record what waits for the GPU or draws random numbers on the CPU. Set it to false
            for models whose forward pass makes other decisions in Python, such as by counting its calls.
        client_memory_gb: main memory for client states, GiB; the rest is memory-mapped in the run's folder.
    """

    device: str
    executor: Literal["in_process", "vectorized"] | None
    threads: Annotated[int, Ge(1), Le(1024)] | None
    deterministic: bool
    cuda_graphs: bool
    client_memory_gb: Annotated[float, Ge(0)]
    processes: Literal["auto"] | Annotated[int, Ge(1), Le(1024)]

    def prepare(self, parallel_jobs: int, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
        """Apply the settings to this process and return the device.

        Args:
            parallel_jobs: how many runs share the machine.
            ranks: the processes that share this run; those on one machine share it, too.

        Raises:
            InputError: there is no such device, or the run has another number of processes.
        """
        if isinstance(self.processes, int) and self.processes != ranks.count:
            raise InputError(
                f"hardware.processes={self.processes}: the number of this run's processes is {ranks.count}; allowed: 1 "
                "or auto in sweeps and in Python; with torchrun auto"
            )
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise InputError(f"hardware.device={self.device}: no such device; allowed: cpu, cuda, cuda:N") from None
        if device.type not in ("cpu", "cuda"):
            raise InputError(f"hardware.device={self.device}: not supported; allowed: cpu, cuda, cuda:N")
        if device.type == "cuda" and not 0 <= (device.index or 0) < torch.cuda.device_count():  # 999 overflows to -25
            devices = torch.cuda.device_count()
            raise InputError(f"hardware.device={self.device}: PyTorch sees {devices} CUDA devices; try hardware=cpu")
        if device.type == "cuda" and ranks.count > 1:
            device = self._own_gpu(device, ranks)
        if device.type == "cpu":
            keep_freed_memory()
        shared = max(1, cores() // (parallel_jobs * ranks.local_count))
        torch.set_num_threads(self.threads or openmp_threads() or shared)
        if device.type == "cuda":
            torch.cuda.set_device(device.index or 0)  # dropout draws from the current device's generator
            if self.deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            # torch.use_deterministic_algorithms would also load PyTorch's compilers, which no run needs
            torch.set_deterministic_debug_mode("warn" if self.deterministic else "default")
            # fedrun reads no uninitialised memory, and filling it would cost a kernel for every new tensor
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            # cuDNN's order of weights is not that of a model's vector, so each call of a recurrent layer copies them
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        return device

    def fit_threads(self, step: int) -> None:
        """Reduce this process to one thread if the network is small, unless the user has set the number of threads.

        Args:
            step: multiply-adds of a forward pass over the batches of a step (:data:`SMALL_STEP`).
        """
        if self.threads is None and openmp_threads() is None and step < SMALL_STEP:
            torch.set_num_threads(1)

    def _own_gpu(self, device: torch.device, ranks: Ranks) -> torch.device:
        """The GPU of one of several ranks: NCCL needs one for each."""
        devices = torch.cuda.device_count()
        if device.index is not None or ranks.local_count > devices:
            raise InputError(
                f"hardware.device={self.device}: {ranks.local_count} processes were started on a machine with "
                f"{devices} CUDA devices, and each needs its own; allowed: hardware.device=cuda, and at most as many "
                "processes"
            )
        return torch.device("cuda", ranks.local)


@contextmanager
def restored_settings() -> Iterator[None]:
    """Give PyTorch back the number of threads and the choice of deterministic kernels that it has before the block."""
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)


def gpu_name(device: torch.device) -> str | None:
    """The product name of a GPU; None for the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else None


def openmp_threads() -> int | None:
    """The number of threads that the user has set by ``OMP_NUM_THREADS``; None: it is not set.

    torchrun sets it to 1 if the user has not set it.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if not first.isdecimal() or int(first) == 0 or (int(first) == 1 and launched()):
        return None
    return int(first)
