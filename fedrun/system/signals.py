"""How a command ends when it is asked to: by Ctrl-C (SIGINT), by SIGTERM, as schedulers do it, or by SIGHUP, when its
terminal is closed.

The stop is an exception, :class:`KeyboardInterrupt` or :class:`TerminatedError`, so that whatever the process does
ends and its run writes a checkpoint. Python calls a signal's handler between any two instructions of the main thread.
At some of them an exception would be lost, or would leave a package half loaded:

* while a module is loaded, packages catch everything, or fail in ways of their own;
* in a finalizer (``__del__``), or a callback of a library in C, Python prints the exception and goes on.

So the handler only notes the stop and raises it at a safe point. It looks at the stack. Where the point is not safe it
looks again a little later, and so it does where the exception it has raised is not being handled then: it was lost.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

TERMINATING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals by which anybody but the user ends a process; not every system has both."""

LATER = 0.02
"""Seconds until the stack is looked at again after a point that is not safe."""

LOST = 1.0
"""Seconds after which a stop that was raised, and that nobody handles, counts as lost."""


class TerminatedError(KeyboardInterrupt):
    """A scheduler wants the process to end, or its terminal is gone: as if the user had interrupted it."""


def heeded(*numbers: int) -> list[int]:
    """The signals among these that this process was not started to ignore, as with ``nohup``."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def describe_stop(error: KeyboardInterrupt) -> tuple[str, int]:
    """How a stopped process ended, in a word, and its exit status."""
    return ("terminated", TERMINATED) if isinstance(error, TerminatedError) else ("interrupted", INTERRUPTED)


class Stop:
    """The stop that a process was asked for.

    Attributes:
        error: what is raised; None while nobody has asked.
    """

    def __init__(self) -> None:
        self.error: KeyboardInterrupt | None = None

    def handle(self, *numbers: int) -> None:
        """From now on, these signals stop this process, but for those that it was started to ignore."""
        for number in heeded(*numbers):
            signal.signal(number, self._asked)
        sys.unraisablehook = self._not_raised

    def end(self) -> None:
        """The command is over: from now on these signals do nothing, so that its exit status is the command's."""
        for number in heeded(signal.SIGINT, *TERMINATING):
            signal.signal(number, signal.SIG_IGN)
        if self.error is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. SIGTERM counts once, as it may come from several sides; Ctrl-C may be pressed again."""
        if self.error is not None and number != signal.SIGINT:
            return
        self.error = KeyboardInterrupt() if number == signal.SIGINT else TerminatedError()
        signal.signal(signal.SIGALRM, self._look)
        self._look(number, frame)

    def _not_raised(self, ignored: Any) -> None:
        """Called where Python would print an exception and go on: a stop is raised again instead."""
        if self.error is not None and ignored.exc_value is self.error:
            signal.setitimer(signal.ITIMER_REAL, LATER)
        else:
            sys.__unraisablehook__(ignored)

    def _look(self, number: int, frame: FrameType | None) -> None:
        """Raise the stop where that is safe, unless it is being handled already; otherwise look again later."""
        assert self.error is not None
        if is_handled(self.error):
            return
        if not is_safe(frame):
            signal.setitimer(signal.ITIMER_REAL, LATER)
            return
        signal.setitimer(signal.ITIMER_REAL, LOST)
        raise self.error


def is_safe(frame: FrameType | None) -> bool:
    """Whether an exception that is raised in this frame ends what the main program does."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "__del__":
            return False
        frame = frame.f_back
    return True


def is_handled(error: BaseException) -> bool:
    """Whether an exception, or one that was raised while it was handled, is being handled here."""
    current = sys.exc_info()[1]
    while current is not None:
        if current is error:
            return True
        current = current.__cause__ or current.__context__
    return False
