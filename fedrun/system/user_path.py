"""Paths that users give."""

from __future__ import annotations

import errno
from pathlib import Path

from fedrun.system.errors import InputError


def user_path(text: str, key: str, inside: Path | None = None) -> Path:
    """The path that a user has given; nothing need be there.

    Args:
        text: as given.
        key: the key of the configuration, or the option of a command, for messages.
        inside: the folder that it is relative to; None: the current one, and ``~`` is expanded.

    Raises:
        InputError: no file can have this path: a part is too long or has a NUL character, or ``~`` is of no user.
    """
    try:
        path = Path(text).expanduser() if inside is None else inside / text
        path.lstat()
    except (RuntimeError, ValueError, OSError) as error:
        if not isinstance(error, OSError) or error.errno == errno.ENAMETOOLONG:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise InputError(f"{key}={text}: {reason}; allowed: a path that a file may have") from None
    return path
