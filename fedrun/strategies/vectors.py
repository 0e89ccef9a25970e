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


def displacement(start: torch.Tensor, model: torch.Tensor, trainable: int) -> torch.Tensor:
    """x − y over the parameters of models ``[..., P]``, a new vector; the float buffers in it are y's own.

    So displacements and buffers are sent and averaged together.
    """
    moved = model.clone()
    torch.sub(start[..., :trainable], model[..., :trainable], out=moved[..., :trainable])
    return moved
