"""How a command ends when it is asked to: by Ctrl-C (SIGINT), or by SIGTERM, as schedulers do it.

A process that does all the work itself is interrupted where it is, and its run writes a checkpoint. The jobs of a
parallel sweep run in joblib's workers, which joblib kills as soon as the sweep's process is interrupted, or when one of
them ends. Therefore the sweep's process waits, before it is interrupted, until the workers have written their
checkpoints, and a worker that has done so stays until it is killed. A stop that reaches one of them reaches all.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import active_children, parent_process, resource_tracker
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

ASKING = (signal.SIGINT, signal.SIGTERM)
LOCK = ".lock"
POLL = 0.05
"""Seconds between two looks at whether the others have got there."""


class TerminatedError(KeyboardInterrupt):
    """A scheduler wants the process to end: as if the user had interrupted it."""


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Handle SIGTERM: once, as it may come from several sides, and writing a checkpoint takes its time."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TerminatedError


@contextmanager
def workers_first(sweep: Path) -> Iterator[None]:
    """While the block runs, this process is interrupted only after the jobs in its workers have stopped.

    A second Ctrl-C waits for nothing.

    Args:
        sweep: the sweep's folder, the same as in :func:`job_in_worker`.
    """
    handlers = {int(number): handler for number in ASKING if callable(handler := signal.getsignal(number))}

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the workers pass it on
        signal.signal(signal.SIGINT, signal.default_int_handler)
        while not _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
            for worker in active_children():
                worker.terminate()
            time.sleep(POLL)
        handlers[number](number, frame)

    over = threading.Event()
    with (sweep / LOCK).open("a+") as lock:
        # A worker begins with the signals blocked that this thread blocks, so that none ends it before it can heed
        # them; this process gets them by a thread that does not block them.
        threading.Thread(target=over.wait, daemon=True).start()
        resource_tracker.ensure_running()  # in some versions of Python its start unblocks them
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        for number in handlers:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                if signal.getsignal(number) is stop:  # otherwise it has come, and is not to come twice
                    signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            over.set()


@contextmanager
def job_in_worker(sweep: Path) -> Iterator[None]:
    """A job: in a worker, SIGTERM interrupts the block, and the process waits for its end after that. So does the death
    of the sweep's process; then there is nothing to wait for. In any other process nothing changes.
    """
    if (creator := parent_process()) is None or creator.pid is None:
        yield
        return
    boss, working = creator.pid, True

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.getppid() == boss:
            os.kill(boss, signal.SIGTERM)
        if working:
            raise TerminatedError
        _leave_if_alone(boss)

    try:
        with (sweep / LOCK).open("a+") as lock:
            _locked(lock, fcntl.LOCK_SH)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's reaches the sweep's process as well
            if signal.signal(signal.SIGTERM, stop) is signal.SIG_IGN:
                raise TerminatedError  # it came between two jobs
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
            _watch(boss)
            yield
            working = False
    except TerminatedError:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            _leave_if_alone(boss)
            time.sleep(POLL)


def _locked(lock: IO[str], how: int) -> bool:
    """Whether a lock on a file was taken; where files cannot be locked, it counts as taken."""
    try:
        fcntl.flock(lock, how)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@cache
def _watch(boss: int) -> None:
    """Have this process stop when the sweep's process is gone, even if that was killed."""

    def watch() -> None:
        while os.getppid() == boss:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _leave_if_alone(boss: int) -> None:
    """End a worker that nobody would end."""
    if os.getppid() != boss:
        os._exit(TERMINATED)
