"""Top-k sparsification."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Gt, Le

from fedrun.config.config_class import config_class
from fedrun.uploads.compression.base import Compressor
from fedrun.uploads.transform import FLOAT


def kept_entries(fraction: float, entries: int) -> int:
    """k = max(1, round(f d)), and 0 for d = 0."""
    return min(entries, max(1, round(fraction * entries)))


def kth_largest(values: torch.Tensor, k: int) -> float:
    """The k-th largest of float32 values ``[n]``, k from 1 to n.

    On a CPU by NumPy's selection, which takes a tenth of the time of torch's for millions of values.
    """
    if values.device.type == "cpu":
        return float(np.partition(values.numpy(), len(values) - k)[len(values) - k])
    return float(values.topk(k, sorted=False).values.min())


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
        least = kth_largest(magnitude, k)
        kept = magnitude.ge_(least)  # 0 or 1, in the magnitudes' memory
        if (surplus := int(kept.count_nonzero()) - k) > 0:
            ties = (vector.abs() == least).nonzero().flatten()
            kept[ties[len(ties) - surplus :]] = 0.0
        return kept.mul_(vector)

    def size(self, entries: int) -> int:
        k = kept_entries(self.fraction, entries)
        int32, bitmask = 4 * k, -(-entries // 8)
        positions = {"auto": min(int32, bitmask), "int32": int32, "bitmask": bitmask}[self.indices]
        return FLOAT * k + positions
