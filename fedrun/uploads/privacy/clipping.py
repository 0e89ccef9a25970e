"""Clipping: vectors are scaled down to a largest norm."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

TINY = 1e-30
"""Smallest divisor, so that a displacement of zeros stays zeros."""


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
