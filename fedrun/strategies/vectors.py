"""Named vectors that server and clients exchange, and their common names."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Vectors = Mapping[str, "torch.Tensor"]
"""Named vectors: uploads, broadcasts, client states, or the server's state."""

MODEL = "model"
"""The name of a model's vector in broadcasts and uploads."""

CENTRES = "centres"
"""All M models at once, ``[M, P]``, on their way down to clients that mix them."""


def minus(start: torch.Tensor, vector: torch.Tensor, trainable: int) -> torch.Tensor:
    """x − v over the parameters of vectors ``[..., P]``, a new vector; the float buffers in it are v's own.

    So differences and buffers are sent and averaged together.
    """
    difference = vector.clone()
    torch.sub(start[..., :trainable], vector[..., :trainable], out=difference[..., :trainable])
    return difference
