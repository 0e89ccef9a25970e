"""FedCM: clients mix last round's global direction into every step (Xu et al., 2021, arXiv 2106.10874)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_info import ClientInfo, effective_steps
from fedrun.strategies.server import CohortUpdate, Round, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL, Vectors

GLOBAL_GRADIENT = "global_gradient"
"""m ``[T]``, minus the mean displacement of the last round per effective step and learning rate; zero in the first
round."""


@config_class
class FedCMClient(ClientStrategy):
    """Step along α g(y) + (1 − α) m, where g is the gradient, or another strategy's direction.

    Weight decay is added to the mix, and gradient clipping applies to it. With local momentum, m is divided by the
    number of effective steps, so that it stays a mean direction.

    Attributes:
        alpha: α in (0, 1]; 1: plain SGD.
    """

    alpha: Annotated[float, Gt(0), Le(1)]

    needs: ClassVar[frozenset[str]] = frozenset({GLOBAL_GRADIENT})
    assumes_sgd: ClassVar[bool] = True

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        constants = super().constants(received, client_state, client)
        return {**constants, "shift": (1 - self.alpha) * received[GLOBAL_GRADIENT]}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        # α g(y) + (1 − α) m
        return self.alpha * super().direction(gradient, model, constants) + constants["shift"]


@config_class
class FedCMServer(UniformServer):
    """The plain mean of the clients' displacements, also kept as the direction of the next round; buffers are averaged.

    Attributes:
        lr: η_g > 0.
    """

    lr: Annotated[float, Gt(0)]

    sends: ClassVar[frozenset[str]] = frozenset({MODEL, GLOBAL_GRADIENT})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {GLOBAL_GRADIENT: model.new_zeros(layout.trainable)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        trainable = round.layout.trainable
        x, model = state.model[:trainable], update.mean[MODEL]
        # Δ = mean_S (y_k − x)
        delta = model[:trainable] - x
        # x ← x + η_g Δ
        model[:trainable] = x + self.lr * delta
        # m ← −Δ / (a η_t), with a the mean ‖a_k‖₁ of the participants (of all clients if they are private), which is
        # their number of steps without momentum
        steps = effective_steps(update.steps.double(), round.momentum).mean().item()
        return ServerState(model, {GLOBAL_GRADIENT: delta.div_(-steps * round.lr)}), {}
