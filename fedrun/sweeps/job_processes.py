"""Jobs in processes of their own, some at once, which stop together.

A process is forked for each job, so that it begins with everything that its parent has loaded. Asked to stop (see
:mod:`fedrun.system.signals`), the parent asks all of them and waits until they have written their checkpoints.
It does the same when one of them alone was asked. A process that dies costs its own job only.
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
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import FrameType
from typing import Generic, TypeVar

from fedrun.system.signals import TERMINATED, TERMINATING, Stop, TerminatedError, heeded

T = TypeVar("T")

FORK = get_context("fork")
ASKING = (signal.SIGINT, *TERMINATING)
POLL = 0.2
"""Seconds between two looks at whether the parent is still there."""


def carried_out(job: Callable[[int], T], count: int, at_once: int, lost: Callable[[int, str], T]) -> list[T]:
    """What the jobs 0 to ``count`` - 1 return, each carried out in a process of its own.

    Args:
        job: called with the job's number. If it is interrupted, it has to leave what the next one goes on from.
        count: of the jobs.
        at_once: how many processes there are at most.
        lost: called here with the number of a job whose process has died, and how; what counts as returned.

    Raises:
        KeyboardInterrupt: this process was interrupted, and all jobs have stopped; or, interrupted again, killed them.
        TerminatedError: this process, or that of a job, was asked to end by another signal, and all jobs have stopped.
    """
    jobs = _Jobs(job, count, lost)
    with _signals_told() as signals:
        while jobs.started(at_once):
            for ready in wait([signals, *jobs.running]):
                if isinstance(ready, Connection):
                    jobs.ended(ready)
                else:
                    jobs.asked(os.read(signals, 1)[0])
    if jobs.stop is not None:
        raise jobs.stop
    return [jobs.returned[number] for number in range(count)]


class _Jobs(Generic[T]):
    """Jobs that wait, run, and have ended.

    Attributes:
        running: by the connections on which they tell what they return, their numbers and processes.
        returned: what the ended ones returned.
        stop: what all are to be stopped with, once somebody has asked for it.
    """

    def __init__(self, job: Callable[[int], T], count: int, lost: Callable[[int, str], T]) -> None:
        self._job = job
        self._lost = lost
        self._waiting = deque(range(count))
        self.running: dict[Connection, tuple[int, ForkProcess]] = {}
        self.returned: dict[int, T] = {}
        self.stop: KeyboardInterrupt | None = None

    def started(self, at_once: int) -> bool:
        """Start as many as may run; whether any are running."""
        while self._waiting and self.stop is None and len(self.running) < at_once:
            number = self._waiting.popleft()
            told, process = _forked(self._job, number)
            self.running[told] = number, process
        return bool(self.running)

    def ended(self, told: Connection) -> None:
        """A job has returned something, or its process has ended."""
        number, process = self.running.pop(told)
        try:
            self.returned[number] = told.recv()
            process.join()
        except (EOFError, OSError):  # it had not told anything, or not all
            process.join()
            if process.exitcode == TERMINATED:
                self._stop(TerminatedError())
            else:
                self.returned[number] = self._lost(number, death(process.exitcode or 0))

    def asked(self, number: int) -> None:
        """A signal has asked this process to stop: the jobs are to stop first, but need not if it comes twice."""
        if number == signal.SIGINT and self.stop is not None:
            for _, process in self.running.values():
                process.kill()
                process.join()
            raise KeyboardInterrupt
        self._stop(KeyboardInterrupt() if number == signal.SIGINT else TerminatedError())

    def _stop(self, why: KeyboardInterrupt) -> None:
        if self.stop is None:
            self.stop = why
            for _, process in self.running.values():
                process.terminate()


def death(status: int) -> str:
    """How a process with this exit status (negative: the signal that killed it) ended without a result, in one line."""
    if status == -signal.SIGKILL:
        return "its process was killed (SIGKILL), mostly for want of memory: then run fewer jobs at once"
    how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return f"its process ended before its time ({how})"


@contextmanager
def _signals_told() -> Iterator[int]:
    """While the block runs, no signal interrupts anything; the numbers of those that ask to stop come, a byte each, out
    of this file.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def tell(number: int, frame: FrameType | None) -> None:
        os.write(writing, bytes([number]))

    before = {number: signal.signal(number, tell) for number in heeded(*ASKING)}
    try:
        yield reading
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _forked(job: Callable[[int], T], number: int) -> tuple[Connection, ForkProcess]:
    """A job's process, and the connection by which it tells what the job returned."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_carry_out, args=(job, number, sender, os.getpid()))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # until it can heed them
    process.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    sender.close()  # the job's process alone holds it now, so that its end is the end of what can be received
    return receiver, process


def _carry_out(job: Callable[[int], T], number: int, sender: Connection, parent: int) -> None:
    """A job's process. SIGTERM, which the parent sends, interrupts the job, and so does the parent's death."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGTERM)

    stop = Stop()
    try:
        # first, and not after ignoring it: what is ignored while it waits to be unblocked is forgotten
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may ignore it
        stop.handle(signal.SIGTERM)
        for each in ASKING:
            if each != signal.SIGTERM:
                signal.signal(each, signal.SIG_IGN)  # a terminal's signals reach the parent as well
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
        threading.Thread(target=watch, daemon=True).start()
        result = job(number)
        stop.end()
    except TerminatedError:
        stop.end()
        sys.exit(TERMINATED)
    sender.send(result)
