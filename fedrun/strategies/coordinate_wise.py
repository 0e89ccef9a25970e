"""Coordinate-wise robust aggregation: median and trimmed mean (Yin, Chen, Ramchandran, Bartlett, ICML 2018)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt

from fedrun.config.config_class import config_class
from fedrun.strategies.server import COLUMNS, CohortUpdate, Round, Rows, ServerState, ServerStrategy


@config_class
class CoordinateMedian(ServerStrategy):
    """Every entry of the model becomes the median of the clients' entries; all clients have the same weight.

    For an even number of clients it is the mean of the two in the middle.
    """

    rows: ClassVar[Rows] = "all"

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        clients = len(update.rows)
        middle = trimmed_mean(update.rows, (clients - 1) // 2)
        return ServerState(middle, state.slots), {}


@config_class
class TrimmedMean(ServerStrategy):
    """Every entry of the model becomes the mean of the clients' entries without the smallest and the largest.

    Attributes:
        trim: β in [0, 1/2): ⌊β M⌋ of a round's M clients are left out on either side, entry by entry; all others have
            the same weight. 0: the plain mean.
    """

    trim: Annotated[float, Ge(0), Lt(0.5)]

    rows: ClassVar[Rows] = "all"

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        left_out = math.floor(self.trim * len(update.rows) + 1e-9)
        return ServerState(trimmed_mean(update.rows, left_out), state.slots), {"trimmed": float(2 * left_out)}


def trimmed_mean(rows: torch.Tensor, left_out: int) -> torch.Tensor:
    """The mean ``[P]`` over clients (``[C, P]``) without the ``left_out`` smallest and largest of each entry."""
    mean = rows.new_empty(rows.shape[1])
    for part, mean_part in zip(torch.split(rows, COLUMNS, dim=1), torch.split(mean, COLUMNS), strict=True):
        torch.mean(part.sort(dim=0).values[left_out : len(rows) - left_out], dim=0, out=mean_part)
    return mean
