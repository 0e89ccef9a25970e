"""The memory that a process has needed."""

from __future__ import annotations

import resource


def peak() -> int:
    """Bytes of the largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
