"""Only regular files are read: to open a FIFO or a device may block for ever."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fedrun.system.errors import InputError


def stat_regular(path: Path) -> os.stat_result:
    """The status of a regular file or of a link to one.

    Raises:
        InputError: the file cannot be examined, or is a folder, a FIFO, a socket or a device.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} cannot be read: it is not a regular file")
    return status


def read_lines(path: Path) -> list[str]:
    """The lines of a text file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        stat_regular(path)
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read as text in UTF-8: {reason}") from error
