"""Distances between the models of clients."""

from __future__ import annotations

import torch

from fedrun.strategies.server import COLUMNS


def squared_distances(vectors: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """‖v_i − o_j‖² for vectors ``[m, T]`` and others ``[n, T]``: float64 ``[m, n]``.

    By differences, because the expanded square is inaccurate for models that lie close together.
    """
    distances = torch.zeros(len(vectors), len(others), dtype=torch.float64, device=vectors.device)
    for part, other in zip(torch.split(vectors, COLUMNS, dim=1), torch.split(others, COLUMNS, dim=1), strict=True):
        distances += torch.cdist(part, other, compute_mode="donot_use_mm_for_euclid_dist").double().square()
    return distances
