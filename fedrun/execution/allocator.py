"""How the C library's allocator treats the large blocks that a batch's activations take."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's ``mallopt``: the free memory above which it is given back, and from which size on blocks are mapped."""

GIB = 2**30
LARGEST = 2**31 - 1
"""Thresholds that ``mallopt`` sets, in bytes."""


def keep_freed_memory() -> bool:
    """Let this process reuse the large blocks that it frees, instead of giving them back and asking for them anew.

    By itself glibc maps every block above 32 MiB, such as the activations of 64 photographs in a convolution, and
    unmaps it a moment later; then the kernel has to lay out and zero every page of it, batch after batch. A run's
    memory does not fall after its peak, which is somewhat higher, since large blocks leave gaps between them.

    Returns:
        Whether it was possible: only glibc (Linux) has this.
    """
    return tell(mapped_from=GIB, given_back_from=LARGEST)


def tell(mapped_from: int, given_back_from: int) -> bool:
    """Set both thresholds of the allocator, in bytes; whether it accepted them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, mapped_from) and mallopt(M_TRIM_THRESHOLD, given_back_from))
