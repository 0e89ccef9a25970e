"""Krum and multi-Krum (Blanchard, El Mhamdi, Guerraoui, Stainer, NeurIPS 2017, arXiv 1703.02757)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.distances import squared_distances
from fedrun.strategies.server import CohortUpdate, Round, Rows, ServerState, ServerStrategy
from fedrun.system.errors import RunError


@config_class
class Krum(ServerStrategy):
    """The mean of the models that lie closest to their neighbours.

    A client's score is the sum of the squared distances between its parameters and those of its M − f − 2 nearest other
    clients; the models with the lowest scores are kept. Among equal scores the client selected first is preferred.

    Attributes:
        byzantine: f ≥ 0, the number of clients per round that may send anything; a round needs M ≥ 2 f + 3 uploads.
        keep: m ≥ 1, the number of models that are averaged: 1 is Krum, more is multi-Krum (at most M).
    """

    byzantine: Annotated[int, Ge(0)]
    keep: Annotated[int, Ge(1)]

    rows: ClassVar[Rows] = "all"

    @property
    def least_uploads(self) -> int:
        return max(2 * self.byzantine + 3, self.keep)

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        uploads = len(update.rows)
        if uploads < self.least_uploads:
            raise RunError(
                f"round {round.index + 1}: Krum with byzantine={self.byzantine} and keep={self.keep} needs "
                f"at least {self.least_uploads} uploads, but there are {uploads}; raise clients_per_round or lower the "
                "two"
            )
        trainable = round.layout.trainable
        scores = krum_scores(update.rows[:, :trainable], self.byzantine)
        kept = scores.argsort(stable=True)[: self.keep]
        shares = torch.zeros(uploads, device=scores.device).index_fill_(0, kept, 1 / self.keep)
        return ServerState(shares @ update.rows, state.slots), {"kept_score": scores[kept].mean().item()}


def krum_scores(vectors: torch.Tensor, byzantine: int) -> torch.Tensor:
    """Σ of the squared distances of each of M vectors ``[M, T]`` to its M − f − 2 nearest others, ``[M]``."""
    # s_k = Σ ‖y_k − y_j‖² over the M − f − 2 nearest j ≠ k
    neighbours = len(vectors) - byzantine - 2
    distances = squared_distances(vectors, vectors)
    return distances.sort(dim=1).values[:, 1 : 1 + neighbours].sum(1)  # the nearest is the vector itself
