"""Several encoders that read the same samples (imported only where a network is built: it needs torch at import)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch


class ParallelEncoders(torch.nn.Module):
    """Samples to the embeddings of each encoder, one after the other: ``[batch, d_1 + d_2 + ..]``."""

    def __init__(self, encoders: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.encoders = torch.nn.ModuleList(encoders)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([encoder(inputs) for encoder in self.encoders], dim=-1)


class OutsideEncoder(torch.nn.Module):
    """An encoder that is not part of the network: none of its tensors is trained, averaged or sent.

    Args:
        embed: inputs ``[B, ...]``, and whether the network is in training mode, to embeddings ``[B, d]``.
    """

    def __init__(self, embed: Callable[[torch.Tensor, bool], torch.Tensor]) -> None:
        super().__init__()
        self._embed = embed

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self._embed(inputs, self.training)
