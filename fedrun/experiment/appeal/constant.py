"""One threshold for all clients."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.data.federation import ClientIndices
from fedrun.experiment.appeal.base import Solo, Thresholds, WithThresholds
from fedrun.strategies.local_training import LocalTraining


@config_class
class Constant(WithThresholds):
    """ρ_k is the same number for every client; clients have no models of their own.

    Attributes (besides those of :class:`WithThresholds`):
        loss: ρ, the mean cross-entropy below which the global model appeals, in nats.
    """

    loss: Annotated[float, Gt(0)]

    def thresholds(self, clients: ClientIndices, local: LocalTraining, solo: Solo) -> Thresholds:
        everyone = torch.full((len(clients),), self.loss, dtype=torch.float64)
        return Thresholds(everyone, everyone, None)
