"""Runs each job in a forked process, several at once; all of them stop together.

A forked process starts with all modules that its parent has loaded. After a stop signal (see
:mod:`fedrun.system.signals`) the parent terminates all processes and waits until they have written their checkpoints.
It does the same if a stop signal reaches only one of the processes. A process that dies fails its own job only.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import Generic, TypeVar

from fedrun.system.signals import TERMINATED, TERMINATING, Stop, TerminatedError, not_ignored

T = TypeVar("T")

FORK = get_context("fork")
STOP_SIGNALS = (signal.SIGINT, *TERMINATING)
POLL = 0.2
"""Seconds between two checks of whether the parent still runs."""


def run_jobs(
    job: Callable[[int, int], T],
    count: int,
    at_once: int,
    lost: Callable[[int, str], T],
    progress: Callable[[int], None] = lambda number: None,
) -> list[T]:
    """Run the jobs 0 to ``count`` - 1, each in its own process, and return their results in order.

    Args:
        job: called with the job's number and its slot, 0 to ``at_once`` - 1, which no other running job has. An
            interrupted job must leave a state from which it can be resumed.
        count: number of jobs.
        at_once: largest number of processes at the same time.
        lost: called with the number of a job whose process died and the reason; returns the job's result.
        progress: called with the number of each job that has ended.

    Raises:
        KeyboardInterrupt: this process was interrupted, and all jobs have stopped; or, interrupted again, killed them.
        TerminatedError: this process or a job's process received another stop signal, and all jobs have stopped.
    """
    jobs = _Jobs(job, count, lost)
    with _signal_pipe() as signals:
        while jobs.started(at_once):
            for ready in wait([signals, *jobs.running]):
                if isinstance(ready, Connection):
                    if (number := jobs.ended(ready)) in jobs.returned:
                        progress(number)
                else:
                    jobs.stop_requested(os.read(signals, 1)[0])
    if jobs.stop is not None:
        raise jobs.stop
    return [jobs.returned[number] for number in range(count)]


@dataclass(frozen=True)
class _RunningJob:
    """A job's number, its slot and its process."""

    number: int
    slot: int
    process: ForkProcess


class _Jobs(Generic[T]):
    """Waiting, running and finished jobs.

    Attributes:
        running: the running jobs, by the connection that receives the result.
        returned: results of the finished jobs, by number.
        stop: the exception that stops all jobs; None until a stop is requested.
    """

    def __init__(self, job: Callable[[int, int], T], count: int, lost: Callable[[int, str], T]) -> None:
        self._job = job
        self._lost = lost
        self._waiting = deque(range(count))
        self.running: dict[Connection, _RunningJob] = {}
        self.returned: dict[int, T] = {}
        self.stop: KeyboardInterrupt | None = None

    def started(self, at_once: int) -> bool:
        """Start as many jobs as may run; return whether any are running."""
        while self._waiting and self.stop is None and len(self.running) < at_once:
            number = self._waiting.popleft()
            slot = min(set(range(at_once)) - {job.slot for job in self.running.values()})
            connection, process = _forked(self._job, number, slot)
            self.running[connection] = _RunningJob(number, slot, process)
        return bool(self.running)

    def ended(self, connection: Connection) -> int:
        """Record a job's result, or the end of its process; return the job's number."""
        ended = self.running.pop(connection)
        number, process = ended.number, ended.process
        try:
            self.returned[number] = connection.recv()
            process.join()
        except (EOFError, OSError):  # the process ended before it sent its result
            process.join()
            if process.exitcode == TERMINATED:
                self._stop(TerminatedError())
            else:
                self.returned[number] = self._lost(number, death(process.exitcode or 0))
        return number

    def stop_requested(self, number: int) -> None:
        """Stop all jobs after a signal to this process; kill them after a second SIGINT."""
        if number == signal.SIGINT and self.stop is not None:
            for job in self.running.values():
                job.process.kill()
                job.process.join()
            raise KeyboardInterrupt
        self._stop(KeyboardInterrupt() if number == signal.SIGINT else TerminatedError())

    def _stop(self, why: KeyboardInterrupt) -> None:
        if self.stop is None:
            self.stop = why
            for job in self.running.values():
                job.process.terminate()


def death(status: int) -> str:
    """How a process with this exit status (negative: the signal that killed it) ended without a result, in one line."""
    if status == -signal.SIGKILL:
        return "its process was killed (SIGKILL), usually because memory ran out; run fewer jobs at once"
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"its process ended early ({how})"


@contextmanager
def _signal_pipe() -> Iterator[int]:
    """A pipe that receives the number of each stop signal as one byte. No signal interrupts the block itself."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def write_number(number: int, frame: FrameType | None) -> None:
        os.write(writing, bytes([number]))

    before = {number: signal.signal(number, write_number) for number in not_ignored(*STOP_SIGNALS)}
    try:
        yield reading
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _forked(job: Callable[[int, int], T], number: int, slot: int) -> tuple[Connection, ForkProcess]:
    """Fork a job's process; return it and the connection that receives the job's result."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=run_forked_job, args=(partial(job, number, slot), sender, os.getpid()))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # until the process has its own handlers
    process.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    sender.close()  # so that the connection closes when the job's process ends
    return receiver, process


def run_forked_job(job: Callable[[], T], sender: Connection, parent: int) -> None:
    """Run a job in its own process. SIGTERM from the parent, and the parent's death, interrupt it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGTERM)

    stop = Stop()
    try:
        # First: a blocked signal that is ignored in the meantime would be lost.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may ignore it
        stop.handle(signal.SIGTERM)
        for stop_signal in STOP_SIGNALS:
            if stop_signal != signal.SIGTERM:
                signal.signal(stop_signal, signal.SIG_IGN)  # a terminal's signals reach the parent as well
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        threading.Thread(target=watch, daemon=True).start()
        result = job()
        stop.end()
    except TerminatedError:
        stop.end()
        sys.exit(TERMINATED)
    sender.send(result)
