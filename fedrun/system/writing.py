"""The message when a file of a run cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrun.system.errors import NO_ROOM, InputError, RunError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failing write below ``path`` (full disk, read-only folder) into an error of one line.

    The block only writes: an :class:`OSError` from reading data or from a user's code would be reported as a failed
    write.

    Raises:
        RunError: the disk is full, a quota is used up, or a limit of file sizes is reached.
        InputError: the file cannot be written for another reason.
    """
    try:
        yield
    except OSError as error:
        kind = RunError if error.errno in NO_ROOM else InputError
        raise kind(
            f"{error.filename or path}: cannot be written ({error.strerror or error}); make room or choose "
            "another output_dir; the files so far are kept, and the same command continues the run"
        ) from error
