"""Top-k sparsification."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Gt, Le

from fedrun.config.config_class import config_class
from fedrun.uploads.compression.base import Compressor
from fedrun.uploads.transform import FLOAT

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

SAMPLE = 2**16
"""About the number of entries that estimate a bound of the largest."""


def kept_entries(fraction: float, entries: int) -> int:
    """k = max(1, round(f d)), and 0 for d = 0."""
    return min(entries, max(1, round(fraction * entries)))


def largest_entries(magnitude: torch.Tensor, k: int) -> torch.Tensor:
    """Positions of the k largest entries, the first among equal ones: int64 ``[k]`` in no particular order.

    Args:
        magnitude: float32 ``[n]``, at least 0.
        k: number of entries, 1 to n.
    """
    if magnitude.device.type == "cpu":  # NumPy compares and selects in a quarter of torch's time
        return torch.from_numpy(_largest_entries(magnitude.numpy(), k))
    least = magnitude.topk(k, sorted=False).values.min()
    above, equal = (magnitude > least).nonzero().flatten(), (magnitude == least).nonzero().flatten()
    return torch.cat([above, equal[: k - len(above)]])


def _largest_entries(magnitude: FloatArray, k: int) -> IntArray:
    """The same on a CPU. A bound that about 5/4 k entries reach, estimated from a sample, leaves few candidates."""
    sample = magnitude[:: max(1, len(magnitude) // SAMPLE)]
    reach = min(len(sample), 16 + 5 * k * len(sample) // (4 * len(magnitude)))
    candidates = np.flatnonzero(magnitude >= _nth_largest(sample, reach))
    if len(candidates) < k:  # the bound was too high
        candidates = np.arange(len(magnitude))
    values = magnitude[candidates]
    least = _nth_largest(values, k)
    above, equal = candidates[values > least], candidates[values == least]
    return np.concatenate([above, equal[: k - len(above)]])


def _nth_largest(values: FloatArray, n: int) -> float:
    return float(np.partition(values, len(values) - n)[len(values) - n])


@config_class
class TopK(Compressor):
    """Only the k entries of largest magnitude are sent; among equal ones the first.

    Attributes:
        fraction: f in (0, 1] of k = max(1, round(f d)).
        indices: how positions are counted: ``int32``: 4 bytes each; ``bitmask``: a bit for every entry; ``auto``: the
            smaller.
    """

    fraction: Annotated[float, Gt(0), Le(1)]
    indices: Literal["auto", "int32", "bitmask"]

    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        magnitude, k = vector.abs(), kept_entries(self.fraction, len(vector))
        if k == len(vector):
            return vector.clone()
        kept = largest_entries(magnitude, k)
        compressed = magnitude.zero_()  # faster than new memory
        return compressed.index_copy_(0, kept, vector.index_select(0, kept))

    def size(self, entries: int) -> int:
        k = kept_entries(self.fraction, entries)
        int32, bitmask = 4 * k, -(-entries // 8)
        positions = {"auto": min(int32, bitmask), "int32": int32, "bitmask": bitmask}[self.indices]
        return FLOAT * k + positions
