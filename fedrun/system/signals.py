"""Stop signals: Ctrl-C (SIGINT), SIGTERM from a scheduler, and SIGHUP when the terminal is closed.

The stop is an exception, :class:`KeyboardInterrupt` or :class:`TerminatedError`, so that the
run writes a checkpoint and ends. Python calls a signal's handler between any two instructions of the main thread.
At some of them an exception would be lost, or would leave a package partly loaded:

* while a module is loaded, packages may catch all exceptions, or fail with another one;
* in a finalizer (``__del__``), or a callback of a library in C, Python prints the exception and continues.

So the handler only records the stop and raises it at a safe point, which it recognises by the stack. If the point is
not safe, it checks again a little later. It also does so if a raised exception is not being handled then, because the
exception was lost. The timer repeats: a signal that arrives just before a system call does not interrupt the call,
which may last long.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

TERMINATING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The stop signals that do not come from the keyboard; not every system has both."""

LATER = 0.02
"""Seconds between two checks of the stack after an unsafe point."""

LOST = 1.0
"""Seconds after which a raised stop that is not handled counts as lost."""


class TerminatedError(KeyboardInterrupt):
    """The process received SIGTERM or SIGHUP; handled like an interruption by the user."""


def not_ignored(*numbers: int) -> list[int]:
    """The signals among these that this process was not started to ignore, as with ``nohup``."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def describe_stop(error: KeyboardInterrupt) -> tuple[str, int]:
    """``terminated`` or ``interrupted``, and the exit status of the process."""
    return ("terminated", TERMINATED) if isinstance(error, TerminatedError) else ("interrupted", INTERRUPTED)


class Stop:
    """The stop of a process.

    Attributes:
        error: the exception to raise; None before a stop signal.
    """

    def __init__(self) -> None:
        self.error: KeyboardInterrupt | None = None

    def handle(self, *numbers: int) -> None:
        """From now on, these signals stop this process, except those that it was started to ignore."""
        for number in not_ignored(*numbers):
            signal.signal(number, self._on_signal)
        sys.unraisablehook = self._not_raised

    def end(self) -> None:
        """End the handling: from now on these signals do nothing, so that the exit status is the command's."""
        for number in not_ignored(signal.SIGINT, *TERMINATING):
            signal.signal(number, signal.SIG_IGN)
        if self.error is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. SIGTERM counts once, as it may come from several sides; Ctrl-C may be pressed again."""
        if self.error is not None and number != signal.SIGINT:
            return
        self.error = KeyboardInterrupt() if number == signal.SIGINT else TerminatedError()
        signal.signal(signal.SIGALRM, self._look)
        self._look(number, frame)

    def _not_raised(self, ignored: Any) -> None:
        """Called when Python would print an exception and continue: a stop is raised again instead."""
        if self.error is not None and ignored.exc_value is self.error:
            signal.setitimer(signal.ITIMER_REAL, LATER, LATER)
        else:
            sys.__unraisablehook__(ignored)

    def _look(self, number: int, frame: FrameType | None) -> None:
        """Raise the stop if the point is safe and it is not being handled already; otherwise check again later."""
        assert self.error is not None
        if is_handled(self.error):
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        if not is_safe(frame):
            signal.setitimer(signal.ITIMER_REAL, LATER, LATER)
            return
        signal.setitimer(signal.ITIMER_REAL, LOST, LATER)
        raise self.error


def is_safe(frame: FrameType | None) -> bool:
    """Whether an exception raised in this frame ends the main program."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "__del__":
            return False
        if code is Stop._not_raised.__code__:  # an exception raised in that hook is printed, and lost
            return False
        frame = frame.f_back
    return True


def is_handled(error: BaseException) -> bool:
    """Whether an exception, or one that was raised while it was handled, is being handled here."""
    return any(current is error for current in chain(sys.exc_info()[1]))


def stop_behind(error: BaseException) -> KeyboardInterrupt | None:
    """The stop that an error replaced, because a stopped library may fail in its clean-up; None if there is none."""
    return next((current for current in chain(error) if isinstance(current, KeyboardInterrupt)), None)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, the one during whose handling it was raised, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
