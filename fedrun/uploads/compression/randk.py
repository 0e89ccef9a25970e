"""Random-k sparsification."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from annotated_types import Gt, Le

from fedrun.config.config_class import config_class
from fedrun.uploads.compression.base import Compressor
from fedrun.uploads.compression.topk import kept_entries
from fedrun.uploads.transform import FLOAT

SEED = 8
"""Bytes of the seed from which the receiver draws the positions again."""


@config_class
class RandK(Compressor):
    """k entries at uniformly drawn positions are sent.

    Attributes:
        fraction: f in (0, 1] of k = max(1, round(f d)).
        scaled: multiply them by d / k, which makes the compressor unbiased.
        shared_positions: all clients of a round send the same positions.
    """

    fraction: Annotated[float, Gt(0), Le(1)]
    scaled: bool
    shared_positions: bool

    @property
    def is_unbiased(self) -> bool:
        return self.scaled

    @property
    def shared_draw(self) -> bool:
        return self.shared_positions

    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        entries, k = len(vector), kept_entries(self.fraction, len(vector))
        seed = int(torch.randint(2**62, (), generator=draw))
        drawn = np.random.default_rng(seed).choice(entries, k, replace=False, shuffle=False)
        positions = torch.from_numpy(drawn).to(vector.device)
        # (d/k) v_i, or v_i, at the k positions
        values = vector[positions] * (entries / k if self.scaled else 1.0)
        return torch.zeros_like(vector).index_put_((positions,), values)

    def size(self, entries: int) -> int:
        return FLOAT * kept_entries(self.fraction, entries) + SEED
