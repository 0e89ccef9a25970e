"""FedExP: the server's step size by extrapolation (Jhunjhunwala, Wang, Joshi, ICLR 2023, arXiv 2301.09604)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, Senders, ServerState, ServerStrategy, uniform
from fedrun.strategies.vectors import MODEL, Vectors

SQUARED_NORM = "squared_norm"
"""‖y_k − x‖² over the parameters, one number."""

ITERATE = "fedexp/iterate"
"""x_t, the model that is broadcast; the state's model is (x_t + x_{t−1}) / 2."""


@config_class
class FedExPClient(ClientStrategy):
    """Plain local SGD; the client also reports how far it has moved."""

    sends: ClassVar[frozenset[str]] = frozenset({MODEL, SQUARED_NORM})

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        moved = model[..., : client.trainable] - received[MODEL][..., : client.trainable]
        return {MODEL: model, SQUARED_NORM: moved.square().sum(-1, keepdim=True)}, {}


@config_class
class FedExP(ServerStrategy):
    """x ← x + η_g Δ with η_g = max(1, Σ_S ‖D_k‖² / (2 M (‖Δ‖² + ε))): large where the clients' moves disagree.

    D_k = y_k − x, Δ is their plain mean over the M participants. The mean of the last two iterates is evaluated, since
    single iterates oscillate. Float buffers are averaged.

    Attributes:
        eps: ε > 0.
    """

    eps: Annotated[float, Gt(0)]

    needs: ClassVar[frozenset[str]] = frozenset({MODEL, SQUARED_NORM})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {ITERATE: model})

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return uniform(senders)

    def broadcast(self, state: ServerState) -> Vectors:
        return {MODEL: state.slots[ITERATE]}

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        trainable = round.layout.trainable
        x, model = state.slots[ITERATE][:trainable], update.mean[MODEL]
        # Δ = mean_S (y_k − x)
        delta = model[:trainable] - x
        # η_g = max(1, mean_S ‖D_k‖² / (2 (‖Δ‖² + ε)))
        squared = delta.double().square().sum().item()
        lr = max(1.0, update.reports[SQUARED_NORM].mean().item() / (2 * (squared + self.eps)))
        # x_t = x_{t−1} + η_g Δ
        model[:trainable] = x + lr * delta
        evaluated = model.clone()
        evaluated[:trainable] = (x + model[:trainable]) / 2
        return ServerState(evaluated, {ITERATE: model}), {"lr": lr}
