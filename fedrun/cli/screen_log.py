"""Messages of a run on the screen."""

from __future__ import annotations

import logging
import sys

from fedrun.system.errors import one_line


class OneLine(logging.Formatter):
    """Formats every message as one line, also warnings of other libraries."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return one_line(super().formatMessage(record))


def log_to_screen(level: int, begin: str = "") -> None:
    """Show fedrun's messages, and all packages' warnings, as plain lines, at this level and above."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setLevel(level)
    handler.setFormatter(OneLine(f"{begin}%(message)s"))
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("fedrun").setLevel(logging.DEBUG)  # for the run's log file
