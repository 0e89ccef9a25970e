"""Named vectors that server and clients exchange, and their common names."""

from __future__ import annotations

from collections.abc import Mapping

import torch

Vectors = Mapping[str, "torch.Tensor"]
"""Named vectors: uploads, broadcasts, client states, or the server's state."""

MODEL = "model"
"""The name of a model's vector in broadcasts and uploads."""

CENTRES = "centres"
"""The name of all M models, ``[M, P]``, in the broadcast to clients that mix them."""


def on_device(vectors: Vectors, device: torch.device | str) -> dict[str, torch.Tensor]:
    """The same vectors on a device."""
    return {name: vector.to(device) for name, vector in vectors.items()}


def minus(start: torch.Tensor, vector: torch.Tensor, trainable: int) -> torch.Tensor:
    """The differences x − v of the parameters, and v's own float buffers: a new vector ``[..., P]``.

    In this form displacements of parameters and values of buffers are sent and averaged together.
    """
    difference = vector.clone()
    torch.sub(start[..., :trainable], vector[..., :trainable], out=difference[..., :trainable])
    return difference
