"""FedBN: normalisation layers stay with the clients (Li et al., ICLR 2021, arXiv 2102.07623)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Averaging, ClientStrategy, EvaluatedModel
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError

BATCH_NORM = ("BatchNorm", "SyncBatchNorm")
"""How the class names of batch normalisation layers begin."""


@config_class
class FedBN(ClientStrategy):
    """Plain local SGD of the whole network; normalisation layers, with their running statistics, are not sent.

    Attributes:
        layers: ``batch``: the paper's, batch normalisation; ``all``: every normalisation layer, such as ``GroupNorm``.
        newcomers: the normalisation layers of clients that have not taken part yet, in evaluations: ``initial``; or
            ``measured``: the initial scale and shift, with means and variances of the client's training samples under
            the global model.
    """

    layers: Literal["batch", "all"]
    newcomers: Annotated[Literal["measured", "initial"], Neutral("initial")]

    reported: ClassVar[tuple[EvaluatedModel, Averaging]] = ("own", "clients")

    @property
    def evaluates_newcomers(self) -> bool:
        return self.newcomers == "measured"

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

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        if not client.is_new.all():
            return super().own_model(received, client_state, client)
        assert client.measured_statistics is not None
        return client.measured_statistics(received[MODEL])
