"""FedBN: normalisation layers stay with the clients (Li et al., ICLR 2021, arXiv 2102.07623)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Averaging, ClientStrategy, EvaluatedModel
from fedrun.system.errors import InputError

BATCH_NORM = ("BatchNorm", "SyncBatchNorm")
"""How the class names of batch normalisation layers begin."""


@config_class
class FedBN(ClientStrategy):
    """Plain local SGD of the whole network; normalisation layers, with their running statistics, are not sent.

    A client that has not taken part is evaluated by the initial normalisation layers.

    Attributes:
        layers: ``batch``: the paper's, batch normalisation; ``all``: every normalisation layer, such as ``GroupNorm``.
    """

    layers: Literal["batch", "all"]

    reported: ClassVar[tuple[EvaluatedModel, Averaging]] = ("own", "clients")

    def private(self, layout: Layout) -> torch.Tensor:
        mask = torch.zeros(layout.size, dtype=torch.bool)
        for slot in layout.slots:
            normalises = slot.layer.startswith(BATCH_NORM) if self.layers == "batch" else "Norm" in slot.layer
            mask[slot.start : slot.stop] = normalises
        if not mask.any():
            kind = "batch normalisation layer" if self.layers == "batch" else "normalisation layer"
            raise InputError(
                f"strategy/client=fedbn: the model has no {kind}, so that this would be FedAvg; allowed: a model with "
                "one, or strategy.client.layers=all for group and layer normalisation"
            )
        return mask
