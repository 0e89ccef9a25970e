"""Clipping: vectors are scaled down to a largest norm. The base of options that clip all that a client sends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.uploads.privacy.target import DifferentialPrivacy
from fedrun.uploads.transform import Shape

Layers = Literal["flat", "equal", "by_size"]

CLIPPED = "privacy/clipped_share"
"""Among a client's measures: 1 if its upload was longer than the bound, otherwise 0."""

TINY = 1e-30
"""Smallest divisor, so that a displacement of zeros stays zeros."""


@config_class
class ClippedUploads(DifferentialPrivacy):
    """The base of options that clip a client's upload.

    Attributes (besides those of :class:`DifferentialPrivacy`):
        clip: S > 0, the largest Euclidean norm of a client's upload.
        layers: ``flat``: one norm over all entries; ``equal``, ``by_size``: a bound for every tensor, S / √m or
            proportional to the root of its size.
        extra_share: s in (0, 1): the model's displacement is clipped to S √(1 − s), and what the client sends besides,
            such as a control variate, to S √s; None: one norm over all that is sent.
    """

    clip: Annotated[float, Gt(0)]
    layers: Layers
    extra_share: Annotated[Annotated[float, Gt(0), Lt(1)] | None, Neutral(None)]


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


def clip(
    displacements: Vectors, bound: float, layers: Layers, shapes: Mapping[str, Shape], extra_share: float | None = None
) -> bool:
    """Scale a client's displacements in place to a joint norm of at most S; whether they were longer.

    Args:
        displacements: vectors ``[d]`` by name.
        bound: S.
        layers: which norms are bounded, see :class:`ClippedUploads`.
        shapes: shapes of the displacements.
        extra_share: s, see :class:`ClippedUploads`.
    """
    names = sorted(displacements)
    if extra_share is not None and len(names) > 1 and MODEL in names:
        # S² = S_D² + S_c² with S_c² = s S²
        extra = {name: displacements[name] for name in names if name != MODEL}
        model_longer = clip({MODEL: displacements[MODEL]}, bound * math.sqrt(1 - extra_share), layers, shapes)
        return clip(extra, bound * math.sqrt(extra_share), layers, shapes) or model_longer
    if layers == "flat":
        pieces, bounds = [[displacements[name] for name in names]], [bound]
    else:
        pieces = [[piece] for name in names for piece in torch.split(displacements[name], list(shapes[name].layers))]
        bounds = layer_bounds(bound, [len(piece) for (piece,) in pieces], layers == "by_size")
    longer = False
    for vectors, most in zip(pieces, bounds, strict=True):
        norm = joint_norm(vectors)
        if norm > most:
            longer = True
            for vector in vectors:
                vector.mul_(clip_factor(norm, most))
    return longer
