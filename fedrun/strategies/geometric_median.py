"""The geometric median of the clients' models (RFA: Pillutla, Kakade, Harchaoui, 2022, arXiv 1912.13445)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.server import CohortUpdate, Round, Rows, ServerState, WeightedServer


@config_class
class GeometricMedian(WeightedServer):
    """The model with the least weighted sum of distances to the clients' models, by the smoothed Weiszfeld algorithm.

    Distances are those of the parameters; buffers are averaged with the last iteration's weights.

    Attributes (besides those of :class:`WeightedServer`):
        iterations: R ≥ 1; 3 in the paper.
        smoothing: ν > 0, the least distance by which a client's weight is divided.
    """

    iterations: Annotated[int, Ge(1)]
    smoothing: Annotated[float, Gt(0)]

    rows: ClassVar[Rows] = "all"

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        parameters = update.rows[:, : round.layout.trainable]
        alpha = update.weights.to(parameters)
        shares = alpha / alpha.sum()
        for _ in range(self.iterations):
            # β_k = α_k / max(ν, ‖v − y_k‖),  v ← Σ β_k y_k / Σ β_k
            median = shares @ parameters
            distances = torch.stack([(y - median).norm() for y in parameters])
            beta = alpha / distances.clamp_min(self.smoothing)
            shares = beta / beta.sum()
        return ServerState(shares @ update.rows, state.slots), {"largest_share": shares.max().item()}
