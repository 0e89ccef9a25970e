"""FedAvgM: momentum on the server (Hsu, Qi, Brown, 2019, arXiv 1909.06335)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Round, ServerState, WeightedServer
from fedrun.strategies.vectors import MODEL

VELOCITY = "fedavgm/velocity"
"""m in the server's state, ``[T]``."""


@config_class
class FedAvgM(WeightedServer):
    """A step of momentum along the clients' mean displacement Δ = Σ p_k (y_k − x); float buffers are averaged.

    Attributes (besides those of :class:`WeightedServer`):
        lr: η_g > 0.
        momentum: β in [0, 1).
        form: ``heavy_ball``: m ← β m + Δ, x ← x + η_g m; ``nesterov``: x ← x + η_g (Δ + β m) with the new m;
            ``average``: m ← β m + (1 − β) Δ, whose steps are 1 / (1 − β) times smaller.
    """

    lr: Annotated[float, Gt(0)]
    momentum: Annotated[float, Ge(0), Lt(1)]
    form: Literal["heavy_ball", "nesterov", "average"]

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {VELOCITY: model.new_zeros(layout.trainable)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        trainable = round.layout.trainable
        x, model = state.model[:trainable], update.mean[MODEL]
        # Δ = Σ p_k y_k − x
        delta = model[:trainable] - x
        # m ← β m + Δ, or β m + (1 − β) Δ
        gain = 1 - self.momentum if self.form == "average" else 1.0
        velocity = self.momentum * state.slots[VELOCITY] + gain * delta
        # x ← x + η_g m, or x + η_g (Δ + β m)
        step = delta + self.momentum * velocity if self.form == "nesterov" else velocity
        model[:trainable] = x + self.lr * step
        return ServerState(model, {VELOCITY: velocity}), {}
