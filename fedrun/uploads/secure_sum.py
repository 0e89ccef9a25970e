"""Secure aggregation's fixed point: the server learns a sum of integers modulo 2^b, and nothing else.

Not cryptography: the rounding and the bytes of a protocol such as SecAgg+ (Bell et al., CCS 2020). Its masks cancel in
the sum, so they change no result.
"""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class


@config_class
class SecureSum:
    """Uploads are summed in the clear, or, with bits, in fixed point.

    Attributes:
        bits: b of the modulus 2^b, 8 to 32; null: no secure sum.
        levels: into how many steps the range is divided, ≥ 1.
        clip: c > 0: entries of a displacement are cut to [−c, c].
        overhead_bytes: that the protocol adds to every client's upload, ≥ 0.
    """

    bits: Annotated[int, Ge(8), Le(32)] | None
    levels: Annotated[int, Ge(1)]
    clip: Annotated[float, Gt(0)]
    overhead_bytes: Annotated[int, Ge(0)]

    @property
    def step(self) -> float:
        """2 c / levels, the distance of two levels."""
        return 2 * self.clip / self.levels

    def encode(self, vector: torch.Tensor) -> torch.Tensor:
        """round((clip(v, −c, c) + c) / step), int64 in [0, levels], of a float vector ``[..., d]``."""
        return ((vector.double().clamp(-self.clip, self.clip) + self.clip) / self.step).round().long()

    def decode(self, total: torch.Tensor, clients: int) -> torch.Tensor:
        """The sum of so many clients' vectors from the sum of their levels modulo 2^b, float64 ``[..., d]``."""
        # Σ level · step − M c
        return total.double() * self.step - clients * self.clip

    def rounded(self, vector: torch.Tensor) -> torch.Tensor:
        """What one client's vector ``[d]`` contributes to a decoded sum, in its own dtype."""
        return self.decode(self.encode(vector), 1).to(vector)

    def holds(self, total_weight: int) -> bool:
        """Whether sums with this total weight stay below the modulus: Σ w · levels < 2^b."""
        return self.bits is None or total_weight * self.levels < 2**self.bits

    def size(self, entries: int) -> int:
        """Bytes of a vector of so many entries: b bits each, without the protocol's overhead."""
        assert self.bits is not None
        return -(-entries * self.bits // 8)
