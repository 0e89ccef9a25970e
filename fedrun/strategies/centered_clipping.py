"""Centered clipping (Karimireddy, He, Jaggi, ICML 2021, arXiv 2012.10333)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Round, Rows, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL

CENTER = "center"
"""v in the server's state: the displacement of the round before."""


@config_class
class CenteredClipping(UniformServer):
    """The mean of displacements whose distance from the round before's is clipped; all clients weigh the same.

    Buffers are averaged plainly.

    Attributes:
        radius: τ > 0, the largest distance from the center v.
        iterations: L ≥ 1 per round; 1 in the paper.
    """

    radius: Annotated[float, Gt(0)]
    iterations: Annotated[int, Ge(1)]

    rows: ClassVar[Rows] = "parameters"

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {CENTER: model.new_zeros(layout.trainable)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        trainable = round.layout.trainable
        x, center, uploads = state.model[:trainable], state.slots[CENTER], update.rows
        clipped = 0
        for _ in range(self.iterations):
            # v ← v + (1/M) Σ (Δ_k − v) min(1, τ / ‖Δ_k − v‖)
            moved, clipped = torch.zeros_like(center), 0
            for y in uploads:
                apart = y - x - center
                distance = float(apart.norm())
                clipped += distance > self.radius
                moved.add_(apart, alpha=min(1.0, self.radius / max(distance, 1e-30)) / len(uploads))
            center = center + moved
        model = update.mean[MODEL]
        # x ← x + v
        model[:trainable] = x + center
        return ServerState(model, {**state.slots, CENTER: center}), {"clipped": float(clipped)}
