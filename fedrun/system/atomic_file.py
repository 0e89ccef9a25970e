"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, shared: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; at the end, once it is on the disk, it replaces ``path``.

    After an error the temporary file is removed and ``path`` is unchanged. A killed process leaves its
    ``.partial`` file, which the next writer overwrites.

    Args:
        path: the file to write.
        shared: whether several processes may write the file at the same time: each has its own temporary file.

    Raises:
        OSError: the file cannot be written.
    """
    writer = f".{platform.node()}.{os.getpid()}" if shared else ""
    partial = path.with_name(f"{path.name}{writer}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
