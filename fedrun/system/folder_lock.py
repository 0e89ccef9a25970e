"""A folder's lock, so that one process at a time writes to it."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def waiting_lock(folder: Path) -> Iterator[bool]:
    """Wait for a folder's lock and hold it; it ends with the process. False if the file system has no locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that writes to %s", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
