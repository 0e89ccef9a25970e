"""Secure aggregation's fixed point: the server learns a sum of integers modulo 2^b, and nothing else.

Not cryptography: the rounding and the bytes of a protocol such as SecAgg+ (Bell et al., CCS 2020). Its masks cancel in
the sum, so they change no result.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError
from fedrun.uploads.transform import Sender, Sent, Shape, UploadTransform

CLIPPED_ENTRIES = "secure_sum/clipped_share"
"""Among a client's measures: the share of its displacements' entries outside [−c, c]."""


@config_class
class SecureSum(UploadTransform):
    """Uploads are summed as floating-point numbers."""

    def norm_growth(self, entries: int) -> float:
        """The largest growth of a displacement's norm by rounding, given its number of entries."""
        return 0.0


@config_class
class FixedPoint(SecureSum):
    """Uploads are summed in fixed point.

    Attributes:
        bits: b of the modulus 2^b, 8 to 32.
        levels: number of steps of the range, ≥ 1.
        clip: c > 0: entries of a displacement are cut to [−c, c].
        overhead_bytes: that the protocol adds to every client's upload, ≥ 0.
    """

    bits: Annotated[int, Ge(8), Le(32)]
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
        """The sum of this many clients' vectors from the sum of their levels modulo 2^b, float64 ``[..., d]``."""
        # Σ level · step − M c
        return total.double() * self.step - clients * self.clip

    def rounded(self, vector: torch.Tensor) -> torch.Tensor:
        """The contribution of one client's vector ``[d]`` to a decoded sum, in its own dtype."""
        return self.decode(self.encode(vector), 1).to(vector)

    def norm_growth(self, entries: int) -> float:
        return self.step / 2 * math.sqrt(entries)  # an entry is rounded by half a step at most

    def check_headroom(self, total_weight: float) -> None:
        """Reject a modulus that a round's sum may exceed: Σ w · levels < 2^b.

        Raises:
            InputError: naming the keys and what is allowed.
        """
        if not total_weight * self.levels < 1 << self.bits:
            most = int(((1 << self.bits) - 1) / total_weight)
            allowed = f"at most {most} levels" if most else "more bits, or a smaller total weight"
            raise InputError(
                f"secure_sum.bits={self.bits} with secure_sum.levels={self.levels}: the weights of a round, up to "
                f"{total_weight:g}, times the levels exceed 2^{self.bits}; allowed: {allowed}"
            )

    def send(self, displacements: Vectors, sender: Sender) -> Sent:
        entries = sum(map(len, displacements.values()))
        outside = sum(int((vector.abs() > self.clip).sum()) for vector in displacements.values())
        sent = {name: self.rounded(vector) for name, vector in displacements.items()}
        return Sent(sent, measures={CLIPPED_ENTRIES: outside / entries} if entries else {})

    def upload_bytes(self, shape: Shape) -> int:
        return -(-shape.entries * self.bits // 8)

    def extra_bytes(self) -> int:
        return self.overhead_bytes + -(-self.bits // 8)  # and the client's weight
