"""How a command ends when it is asked to: by Ctrl-C (SIGINT), by SIGTERM, as schedulers do it, or by SIGHUP, when its
terminal is closed.

Each interrupts what the process does, and its run writes a checkpoint.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


TERMINATING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals by which anybody but the user ends a process; not every system has both."""


class TerminatedError(KeyboardInterrupt):
    """A scheduler wants the process to end, or its terminal is gone: as if the user had interrupted it."""


def heeded(*numbers: int) -> list[int]:
    """The signals among these that this process was not started to ignore, as with ``nohup``."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def handle_termination() -> None:
    """From now on, those signals interrupt this process."""
    for number in heeded(*TERMINATING):
        signal.signal(number, terminate)


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Handle such a signal: once, as it may come from several sides, and writing a checkpoint takes its time."""
    for each in TERMINATING:
        signal.signal(each, signal.SIG_IGN)
    raise TerminatedError
