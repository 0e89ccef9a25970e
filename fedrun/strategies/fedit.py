"""FedIT: FedAvg of low-rank adapters (Zhang et al., ICASSP 2024, arXiv 2305.05644)."""

from __future__ import annotations

from typing import Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.lora import required_adapters
from fedrun.strategies.server import CohortUpdate, Round, Rows, ServerState
from fedrun.strategies.vectors import MODEL


@config_class
class FedIT(FedAvg):
    """The weighted means of all A_k and of all B_k, whose product is not the mean of the products B_k A_k.

    Attributes:
        variant: ``sum``: the paper's. ``first_client``: the code published with FLoRA assigns the running sum to a
            misspelt name, so that only the first client's parameters, times its weight p_1, reach the server.
    """

    variant: Literal["sum", "first_client"]

    @property
    def rows(self) -> Rows:
        return "none" if self.variant == "sum" else "parameters"

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        required_adapters(layout, "strategy/server=fedit")
        return super().init(model, layout, clients)

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # A ← Σ_k p_k A_k, B ← Σ_k p_k B_k
        if self.variant == "sum":
            return super().aggregate(state, update, round)
        assert update.rows is not None
        model = update.mean[MODEL]
        model[: round.layout.trainable] = float(update.shares[0]) * update.rows[0]
        return ServerState(model, state.slots), {}
