"""A task of a user."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.data.tasks.classification import Classification


@dataclass(frozen=True)
class Brier(Classification):
    """Brier's score of the softmax in place of cross-entropy."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        truth = torch.nn.functional.one_hot(targets, outputs.shape[-1])
        return (outputs.softmax(-1) - truth).square().sum(-1)
