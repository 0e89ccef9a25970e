"""Stochastic quantisation: QSGD (Alistarh et al., 2017, arXiv 1610.02132), TernGrad (Wen et al., 2017), uniform."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.config.marks import NoEffect
from fedrun.uploads.compression.base import Compressor
from fedrun.uploads.transform import FLOAT


@config_class
class Quantize(Compressor):
    """Every entry is rounded at random to one of a few levels, so that its expectation is the entry itself.

    With FedAvg, ``rule=qsgd`` is FedPAQ (Reisizadeh et al., 2020, arXiv 1909.13014).

    Attributes:
        rule: ``qsgd``: s = 2^(b−1) − 1 levels of the norm on either side of zero (1 for b = 1); ``uniform``: 2^b levels
            from the smallest entry to the largest; ``ternary``: −1, 0 or 1 times the largest magnitude, b is unused.
        bits: b in [1, 16] per entry; for ``qsgd`` 1 is the same as 2, since three levels take two bits.
        bucket: number of consecutive entries that share a scale; null: all entries of a tensor, or of the vector.
        rounding: ``stochastic``, or ``nearest``, which is biased by up to half a level.
        scope: of a scale: ``tensor``: every parameter tensor is compressed by itself, because the scales of layers
            differ; ``vector``: all parameters are one vector.
    """

    rule: Literal["qsgd", "uniform", "ternary"]
    bits: Annotated[int, Ge(1), Le(16), NoEffect("rule", ("ternary",))]
    bucket: Annotated[int, Ge(1)] | None
    rounding: Literal["stochastic", "nearest"]
    scope: Annotated[Literal["tensor", "vector"], Neutral("vector")]

    @property
    def is_unbiased(self) -> bool:
        return self.rounding == "stochastic"

    @property
    def by_tensor(self) -> bool:
        return self.scope == "tensor"

    @property
    def levels(self) -> int:
        """s of QSGD: levels on either side of zero that fit into b bits; 1 for b = 1, which then takes two bits."""
        return max(1, (1 << (self.bits - 1)) - 1)

    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        if self.rounding == "stochastic":
            uniforms = torch.rand(len(vector), generator=draw).to(vector.device)
        else:
            uniforms = vector.new_full((len(vector),), 0.5)
        width = len(vector) if self.bucket is None else min(self.bucket, len(vector))
        whole = len(vector) // width * width
        parts = [(vector[:whole].view(-1, width), uniforms[:whole].view(-1, width))]
        if whole < len(vector):
            parts.append((vector[None, whole:], uniforms[None, whole:]))
        return torch.cat([self._quantized(entries, drawn).flatten() for entries, drawn in parts])

    def _quantized(self, vector: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        if self.rule == "uniform":
            return uniform_levels(vector, uniforms, self.bits)
        if self.rule == "ternary":
            return scaled_levels(vector, uniforms, vector.abs().amax(-1, keepdim=True), 1)
        return scaled_levels(vector, uniforms, torch.linalg.vector_norm(vector, dim=-1, keepdim=True), self.levels)

    def size(self, entries: int) -> int:
        buckets = 1 if self.bucket is None else -(-entries // self.bucket)
        if self.rule == "uniform":
            return -(-entries * self.bits // 8) + 2 * FLOAT * buckets
        states = 3 if self.rule == "ternary" else 2 * self.levels + 1
        return -(-entries * (states - 1).bit_length() // 8) + FLOAT * buckets


def scaled_levels(vector: torch.Tensor, uniforms: torch.Tensor, scale: torch.Tensor, levels: int) -> torch.Tensor:
    """QSGD and TernGrad: buckets ``[n, u]`` rounded to s levels of a scale ``[n, 1]`` on either side of zero.

    Args:
        vector: v.
        uniforms: random numbers in [0, 1), ``[n, u]``.
        scale: ‖v‖₂ for QSGD, max |v| for TernGrad.
        levels: s.
    """
    # r = s |v| / scale, m = scale · sign(v) · level / s
    ratio = vector.abs() / scale.where(scale > 0, 1) * levels
    return scale * vector.sign() * rounded(ratio, uniforms) / levels


def uniform_levels(vector: torch.Tensor, uniforms: torch.Tensor, bits: int) -> torch.Tensor:
    """Buckets ``[n, u]`` rounded to 2^b levels from their smallest entry to their largest."""
    # step = (max − min) / (2^b − 1), m = min + step · level; a bucket of equal entries stays as it is
    least, most = vector.amin(-1, keepdim=True), vector.amax(-1, keepdim=True)
    last = 2**bits - 1
    step = (most - least) / last
    # the division may round the largest entry's number up to more than the last level's
    level = rounded((vector - least) / step.where(step > 0, 1), uniforms).clamp_max(last)
    return torch.where(step > 0, least + step * level, vector)


def rounded(ratio: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """⌊r⌋ + [U < r − ⌊r⌋]: r ≥ 0 rounded so that its expectation over uniform U is r; U = 1/2: to the nearest."""
    low = ratio.floor()
    return low + (uniforms < ratio - low)
