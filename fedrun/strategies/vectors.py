"""Named vectors, as they travel between server and clients, and their common names."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Vectors = Mapping[str, "torch.Tensor"]
"""Named vectors: what is sent up or down, what a client keeps, what the server's state holds."""

MODEL = "model"
"""The name under which a model's vector travels, down and up."""

CENTRES = "centres"
"""All M models at once, ``[M, P]``, on their way down to clients that mix them."""


def displacement(start: torch.Tensor, model: torch.Tensor, trainable: int) -> torch.Tensor:
    """x − y over the parameters of models ``[..., P]``, a new vector; the float buffers in it are y's own.

    So displacements and buffers travel, and are averaged, together.
    """
    moved = model.clone()
    torch.sub(start[..., :trainable], model[..., :trainable], out=moved[..., :trainable])
    return moved
