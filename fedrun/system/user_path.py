"""Paths that users give."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fedrun.system.errors import InputError


def user_path(text: str, key: str, inside: Path | None = None) -> Path:
    """The path that a user has given; nothing need be there.

    Args:
        text: as given.
        key: the key of the configuration, or the option of a command, for messages.
        inside: the folder that it is relative to; None: the current one, and ``~`` is expanded.

    Raises:
        InputError: it is empty, or no file can have it: a part is too long or has a NUL, or ``~`` is of no user.
    """
    if not text:
        raise InputError(f"{key}='': is empty; allowed: a path; {key}=. is the current folder")
    try:
        path = Path(text).expanduser() if inside is None else inside / text
        path.lstat()
    except (RuntimeError, ValueError, OSError) as error:
        if not isinstance(error, OSError) or error.errno == errno.ENAMETOOLONG:
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise InputError(f"{key}={text}: {reason}; allowed: a path that a file may have") from None
    return path


def require_current_folder() -> None:
    """Check that the current folder, to which paths are relative, still exists; libraries fail in many ways without it.

    Raises:
        InputError: it has been deleted.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the current folder has been deleted; allowed: a folder that exists") from None
