"""A file that is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path, writer: str = "") -> Iterator[BinaryIO]:
    """A file to write to; at the end, once it is on the disk, it takes the place of what is there.

    After an error nothing is left of it, and what was there before is untouched; a process that is killed leaves its
    ``.partial`` behind, which the next one writes over.

    Args:
        path: the file.
        writer: tells processes apart that may write the same file at the same time; empty: there is one at a time.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}{'.' * bool(writer)}{writer}.partial")
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
