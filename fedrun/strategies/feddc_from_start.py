"""FedDC's clients in FedUmf, with the drift counted from where they start."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientInfo
from fedrun.strategies.feddc import GRADIENT, FedDCClient
from fedrun.strategies.feddyn import DRIFT
from fedrun.strategies.vectors import MODEL, Vectors


@config_class
class FedDCFromStart(FedDCClient):
    """Drift and gradient state move by y_k - start_k instead of y_k - w.

    They differ for clients that FedUmf lets start ahead of the broadcast model w: y_k - w also has what they moved
    while they were idle, as if this round's K steps had made all of it. The server cannot tell where a client started,
    so that the move is sent, too. FedUmf's paper does not say which it is.
    """

    sends: ClassVar[frozenset[str]] = frozenset({MODEL, GRADIENT, DRIFT})

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.start is not None
        uploads, kept = super().finish(model, {**received, MODEL: client.start}, memory, constants, client)
        return {**uploads, DRIFT: kept[DRIFT] - memory[DRIFT]}, kept
