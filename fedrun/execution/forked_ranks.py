"""Ranks that fedrun starts itself (``hardware.processes``): forked from the process that becomes the leader.

A forked process has the modules and the data of its parent, and shares their memory. The parent must not have computed
in several threads before: OpenMP's threads do not exist in a forked process.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fedrun.execution.ranks import LOST, SECONDS_FOR_READERS, SECONDS_FOR_REASON, Ranks, connected
from fedrun.system.errors import RunError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

FORK = get_context("fork")

POLL = 0.01
"""Seconds between two checks of whether the processes have started."""


@contextmanager
def started(count: int, work: Callable[[Ranks], int]) -> Iterator[Ranks]:
    """Start the other ranks; yield the leader. They end before the block does.

    Args:
        count: the number of ranks, the leader included.
        work: the function that each other rank runs in its own process. It returns the exit status of the process.

    Raises:
        RunError: they cannot be started or reached.
    """
    torch.distributed.is_available()  # before the processes are forked, so that it is loaded once
    import_module("torch.distributed.distributed_c10d")  # likewise

    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on this machine
    with tempfile.TemporaryDirectory(prefix="fedrun-") as folder:
        store = Path(folder) / "store"
        processes: list[ForkProcess] = []
        try:
            for number in range(1, count):
                process = FORK.Process(target=_rank, args=(number, count, store, work))
                _start(process, count)
                processes.append(process)
            _wait_for_all(processes, _store(store, count))
            yield _connected(0, count, store)
            seconds = SECONDS_FOR_REASON
        except BaseException:
            seconds = SECONDS_FOR_READERS
            raise
        finally:
            _end(processes, seconds)


def _start(process: ForkProcess, count: int) -> None:
    try:
        process.start()
    except OSError as error:
        raise RunError(
            f"hardware.processes: {count} processes cannot be started ({error.strerror}); try fewer processes"
        ) from error


def _store(path: Path, count: int) -> Store:
    from torch.distributed import FileStore  # type: ignore[attr-defined]  # it is documented there

    return FileStore(str(path), count)


def _wait_for_all(processes: list[ForkProcess], store: Store) -> None:
    """Wait until all other ranks are ready to connect, because connecting would also wait for a lost one."""
    while not store.check([str(number) for number in range(1, len(processes) + 1)]):
        if not all(process.is_alive() for process in processes):
            raise RunError(f"{LOST}; the same command tries again")
        time.sleep(POLL)


def _connected(number: int, count: int, path: Path) -> Ranks:
    return connected(Ranks(number, count, number, count), _store(path, count), "fedrun", str(path))


def _rank(number: int, count: int, path: Path, work: Callable[[Ranks], int]) -> None:
    """The process of another rank."""
    try:
        _store(path, count).set(str(number), "")
        ranks = _connected(number, count, path)
    except (RunError, KeyboardInterrupt):
        sys.exit(1)  # the leader prints the reason
    sys.exit(work(ranks))


def _end(processes: list[ForkProcess], seconds: float) -> None:
    """Wait for processes to end; terminate and then kill those that do not."""
    for stop in (None, ForkProcess.terminate, ForkProcess.kill):
        for process in processes:
            if stop is not None and process.is_alive():
                stop(process)
        for process in processes:
            process.join(seconds)
