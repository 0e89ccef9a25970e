"""How a command ends when it is asked to: by Ctrl-C (SIGINT), or by SIGTERM, as schedulers do it.

Either interrupts what the process does, and its run writes a checkpoint.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


class TerminatedError(KeyboardInterrupt):
    """A scheduler wants the process to end: as if the user had interrupted it."""


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """Handle SIGTERM: once, as it may come from several sides, and writing a checkpoint takes its time."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TerminatedError
