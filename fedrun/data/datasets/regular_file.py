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


def ends_in_quoted_text(path: Path, last: object, encoding: str = "utf-8") -> bool:
    """Whether a CSV file ends inside a quoted text: parsers take all that follows the quote as the last value.

    Args:
        path: path of the file.
        last: the last value of its last row.
        encoding: of the file.

    Raises:
        OSError: the file cannot be read.
    """
    if not isinstance(last, str) or not last.strip('"'):
        return False
    unclosed = b'"' + last.replace('"', '""').encode(encoding)
    with path.open("rb") as file:
        file.seek(-min(len(unclosed), file.seek(0, 2)), 2)
        return file.read() == unclosed
