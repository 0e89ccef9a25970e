"""FedExP: the server's step size by extrapolation (Jhunjhunwala, Wang, Joshi, ICLR 2023, arXiv 2301.09604)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Requirement, Round, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL, Vectors

ITERATE = "fedexp/iterate"
"""x_t, the model that is broadcast; the state's model is (x_t + x_{t−1}) / 2."""


@config_class
class FedExP(UniformServer):
    """x ← x + η_g Δ with η_g = max(1, Σ_S ‖D_k‖² / (2 M (‖Δ‖² + ε))): large where the clients' moves disagree.

    D_k = y_k − x, Δ is their plain mean over the M participants. The server measures ‖D_k‖² on the models as they
    arrive, also compressed ones, so that any client strategy that sends models can be extrapolated, and clients send no
    number besides. The mean of the last two iterates is evaluated, since single iterates oscillate. Float buffers are
    averaged.

    Attributes:
        eps: ε > 0.
    """

    eps: Annotated[float, Gt(0)]

    wants: ClassVar[frozenset[Requirement]] = frozenset({"squared_norms"})
    refinable: ClassVar[bool] = False

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {ITERATE: model})

    def broadcast(self, state: ServerState) -> Vectors:
        return {MODEL: state.slots[ITERATE]}

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        trainable = round.layout.trainable
        x, model = state.slots[ITERATE][:trainable], update.mean[MODEL]
        # Δ = mean_S (y_k − x)
        delta = model[:trainable] - x
        # η_g = max(1, mean_S ‖D_k‖² / (2 (‖Δ‖² + ε)))
        assert update.squared_norms is not None
        squared = delta.double().square().sum().item()
        lr = max(1.0, float(update.shares @ update.squared_norms) / (2 * (squared + self.eps)))
        # x_t = x_{t−1} + η_g Δ
        model[:trainable] = x + lr * delta
        evaluated = model.clone()
        evaluated[:trainable] = (x + model[:trainable]) / 2
        return ServerState(evaluated, {ITERATE: model}), {"lr": lr}
