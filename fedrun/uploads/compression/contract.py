"""Checks of what the methods of a compressor return, so that a mistake is one line that names the method."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fedrun.strategies.contract import is_tensor, mistake, owner
from fedrun.system.errors import InputError


def check_compressed(compressor: object, compressed: object, vector: torch.Tensor, before: int) -> None:
    """Reject what is not a compressed vector, and a change of the vector itself: error feedback would take it for sent.

    Args:
        compressor: the compressor.
        compressed: what its ``compress`` has returned for the vector.
        vector: the vector, ``[d]``.
        before: its version before that.

    Raises:
        InputError: naming the method.
    """
    allowed = f"a new tensor, float32 {list(vector.shape)}"
    if vector._version != before:
        raise InputError(f"{owner(compressor)}.compress: has changed its argument in place; allowed: {allowed}")
    if not is_tensor(compressed, vector.shape, torch.float32):
        raise mistake(compressor, "compress", compressed, allowed)


def check_sizes(compressor: object, sizes: Iterable[object]) -> None:
    """Reject sizes that are not numbers of bytes.

    Raises:
        InputError: naming the method.
    """
    for size in sizes:
        if type(size) is not int or size < 0:
            raise mistake(compressor, "size", repr(size), "a number of bytes, an integer, at least 0")
