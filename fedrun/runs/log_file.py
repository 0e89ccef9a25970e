"""``run.log``: fedrun's messages during a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedrun.system.errors import InputError, RunError
from fedrun.system.writing import writing


@contextmanager
def log_to(path: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Append fedrun's log to a file while the block runs, preceded by the run's overrides and followed by its outcome.

    Args:
        path: the log file.
        overrides: the run's overrides.
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
    try:
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


class LogFile(logging.FileHandler):
    """A log file that ignores errors: if the disk is full, the results cannot be written either, which is reported."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass
