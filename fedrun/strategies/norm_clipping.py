"""Averaging of clipped updates (Sun, Kairouz, Suresh, McMahan, 2019, arXiv 1911.07963)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.server import COLUMNS, CohortUpdate, Round, Rows, ServerState, WeightedServer
from fedrun.strategies.vectors import MODEL


@config_class
class NormClipping(WeightedServer):
    """The weighted mean of the clients' displacements, each scaled down to a largest norm.

    Attributes (besides those of :class:`WeightedServer`):
        max_norm: S > 0, the largest Euclidean norm of a displacement y_k − x of the parameters; buffers are averaged.
    """

    max_norm: Annotated[float, Gt(0)]

    rows: ClassVar[Rows] = "parameters"

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        trainable = round.layout.trainable
        # x ← x + Σ p_k Δ_k min(1, S / ‖Δ_k‖)
        x, uploads = state.model[:trainable], update.rows
        norms = torch.stack([(y - x).norm() for y in uploads])
        scaled = update.shares.to(norms) * (self.max_norm / norms.clamp_min(1e-30)).clamp_max(1)
        model = update.mean[MODEL]
        blocks = (torch.split(vectors, COLUMNS, dim=-1) for vectors in (model[:trainable], x, uploads))
        for moved, here, there in zip(*blocks, strict=True):
            moved.copy_(here + scaled @ (there - here))
        return ServerState(model, state.slots), {
            "clipped": float((norms > self.max_norm).sum()),
            "update_norm": norms.mean().item(),
        }
