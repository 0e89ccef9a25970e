"""Classification, and tasks of users that change a part of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fedrun.data.tasks.classification import CLASSIFICATION, Classification

OUTPUTS, TARGETS = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]]), torch.tensor([0, 1])
"""Cross-entropies log 2 and log 4."""


@dataclass(frozen=True)
class Squared(Classification):
    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, targets) ** 2


@dataclass(frozen=True)
class Weighted(Classification):
    def weights(self, targets: torch.Tensor) -> torch.Tensor:
        return 1.0 + 2.0 * targets


def test_the_mean_loss_is_that_of_the_losses_and_weights() -> None:
    """Training uses the mean loss alone, which a task must not have to override."""
    one, two = math.log(2), math.log(4)
    expected = {CLASSIFICATION: (one + two) / 2, Squared(): (one**2 + two**2) / 2, Weighted(): (one + 3 * two) / 4}
    for task, mean in expected.items():
        torch.testing.assert_close(task.mean_loss(OUTPUTS, TARGETS), torch.tensor(mean))
