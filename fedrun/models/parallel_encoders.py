"""Several encoders that read the same samples (imported only where a network is built: it needs torch at import)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


class ParallelEncoders(torch.nn.Module):
    """Samples to the embeddings of each encoder, one after the other: ``[batch, d_1 + d_2 + ..]``."""

    def __init__(self, encoders: Iterable[torch.nn.Module]) -> None:
        super().__init__()
        self.encoders = torch.nn.ModuleList(encoders)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([encoder(inputs) for encoder in self.encoders], dim=-1)


def side_by_side(encoders: Sequence[torch.nn.Module]) -> torch.nn.Module:
    """Encoders as one; a single one stays as it is."""
    return encoders[0] if len(encoders) == 1 else ParallelEncoders(encoders)
