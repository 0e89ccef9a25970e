"""``run.log``: fedrun's messages during a run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from logging.handlers import MemoryHandler
from pathlib import Path

from fedrun.system.errors import InputError, RunError
from fedrun.system.writing import writing


@contextmanager
def kept_messages() -> Iterator[Sequence[logging.LogRecord]]:
    """fedrun's messages while the block runs, for a log file that is opened later."""
    handler, logger = MemoryHandler(sys.maxsize), logging.getLogger("fedrun")
    logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        logger.removeHandler(handler)


@contextmanager
def log_to(path: Path, overrides: Sequence[str], earlier: Sequence[logging.LogRecord]) -> Iterator[None]:
    """Append fedrun's log to a file while the block runs, preceded by the run's overrides and followed by its outcome.

    Args:
        path: the log file.
        overrides: the run's overrides.
        earlier: messages from before the block.
    """
    with writing(path):
        handler = LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("fedrun")

    def note(level: int, text: str, error: Exception | None = None) -> None:
        """Write a line to the file only; the screen shows the same in another place."""
        details = None if error is None else (type(error), error, error.__traceback__)
        handler.handle(logger.makeRecord("fedrun.runs.run", level, "", 0, text, (), details))

    logger.addHandler(handler)
    note(logging.INFO, f"overrides: {' '.join(overrides)}")
    for record in earlier:
        handler.handle(record)
    passes_all = logger.getEffectiveLevel() <= logging.DEBUG  # in the command, unlike in Python
    try:
        with nullcontext() if passes_all else _all_levels(logger):
            yield
        note(logging.INFO, "finished")
    except (InputError, RunError, OSError) as error:
        note(logging.ERROR, str(error))
        raise
    except Exception as error:
        note(logging.ERROR, "unexpected error", error)
        raise
    except KeyboardInterrupt:
        note(logging.INFO, "interrupted")
        raise
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):
            handler.close()


@contextmanager
def _all_levels(logger: logging.Logger) -> Iterator[None]:
    """Let a logger's own handlers receive messages of all levels, and those above it the same messages as before."""
    level, propagate, above = logger.level, logger.propagate, ToRoot(logger.getEffectiveLevel())
    logger.setLevel(logging.DEBUG)
    if propagate:
        logger.propagate = False
        logger.addHandler(above)
    try:
        yield
    finally:
        logger.removeHandler(above)
        logger.propagate = propagate
        logger.setLevel(level)


class ToRoot(logging.Handler):
    """Passes messages to the handlers of the root logger."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger().handle(record)


class LogFile(logging.FileHandler):
    """A log file that ignores errors: if the disk is full, the results cannot be written either, which is reported."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass
