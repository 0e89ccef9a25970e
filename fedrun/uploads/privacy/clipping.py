"""Bounds on what one client can contribute: scaling of a displacement to a largest norm, fixed or adaptive."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

TINY = 1e-30
"""Smallest divisor, so that a displacement of zeros stays zeros."""

SMALLEST_BOUND, LARGEST_BOUND = 1e-20, 1e20
"""The range of bounds that follow a quantile: squares of longer uploads overflow in float32."""

LOUDEST = (2 - 2**-23) * 2.0**127
"""The largest standard deviation of noise, float32's largest number; so much noise overflows, which ends the run."""


def joint_norm(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """‖(v_1, v_2, ..)‖₂ of vectors ``[..., n_j]`` taken together, float32 ``[...]``."""
    norms = [torch.linalg.vector_norm(vector, dim=-1, dtype=torch.float32) for vector in vectors]
    joint: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    return joint


def clip_factor(norm: torch.Tensor, bound: torch.Tensor | float) -> torch.Tensor:
    """min(1, S / ‖v‖), the factor that clips a vector of this norm to the bound S; same shape as the norm."""
    factor: torch.Tensor = bound / norm.clamp_min(TINY)
    return factor.clamp(max=1)


def layer_bounds(bound: float, sizes: Sequence[int], by_size: bool) -> list[float]:
    """Bounds S_j of layers of these sizes, with √(Σ S_j²) = S.

    All are S / √m, or, by size, proportional to √n_j.
    """
    total = sum(sizes) if by_size else len(sizes)
    return [bound * math.sqrt((size if by_size else 1) / total) for size in sizes]


def update_noise(noise_multiplier: float, count_noise: float) -> float:
    """z_Δ = (z⁻² − (2 σ_b)⁻²)^(−1/2), the uploads' noise multiplier where a noised sum, to which every client adds ½ or
    −½, is also released: both together cost z (Andrew et al., 2021, arXiv 1905.03871, theorem 1).

    Args:
        noise_multiplier: z; 0 stays 0.
        count_noise: σ_b > z / 2.
    """
    # z / √(1 − (z / 2 σ_b)²), in which small z do not overflow
    return noise_multiplier / math.sqrt(1 - (noise_multiplier / (2 * count_noise)) ** 2)


def next_bound(bound: float, unclipped_share: float, quantile: float, lr: float) -> float:
    """S_{t+1} = S_t exp(−η_C (b̃ − γ)): the bound moves towards the γ-quantile of the norms (Andrew et al., 2021).

    It stays between :data:`SMALLEST_BOUND` and :data:`LARGEST_BOUND`.

    Args:
        bound: S_t.
        unclipped_share: b̃, the noised share of clients whose norm was at most S_t.
        quantile: γ.
        lr: η_C.
    """
    widest = math.log(LARGEST_BOUND / SMALLEST_BOUND)
    step = min(max(-lr * (unclipped_share - quantile), -widest), widest)
    return min(max(bound * math.exp(step), SMALLEST_BOUND), LARGEST_BOUND)
