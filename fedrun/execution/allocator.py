"""Keep the large memory blocks that a process frees (glibc's ``mallopt``)."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's ``mallopt``: the free bytes above which memory is returned; the size of mapped blocks."""

GIB = 2**30
LARGEST = 2**31 - 1
"""Thresholds that ``mallopt`` sets, in bytes."""


def keep_freed_memory() -> bool:
    """Let this process reuse the large blocks that it frees instead of returning them to the system.

    By default glibc maps every block above 32 MiB, such as the activations of 64 photographs in a convolution, and
    unmaps it soon after. Then the kernel must map and zero every page of it for every batch. A run's memory does not
    fall after its peak, which is somewhat higher, because large blocks leave gaps between them.

    Returns:
        Whether it was possible: only glibc (Linux) has this.
    """
    return set_thresholds(mapped_from=GIB, given_back_from=LARGEST)


def set_thresholds(mapped_from: int, given_back_from: int) -> bool:
    """Set both thresholds of the allocator, in bytes; whether it accepted them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, mapped_from) and mallopt(M_TRIM_THRESHOLD, given_back_from))
