"""One bit per entry: scaled signs, and signSGD with majority vote (Bernstein et al., 2018, arXiv 1802.04434)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.config.marks import NoEffect
from fedrun.strategies.server import CohortUpdate, Round, Senders, uniform
from fedrun.strategies.vectors import Vectors
from fedrun.uploads.compression.base import Compressor
from fedrun.uploads.transform import FLOAT, Combined

VOTERS = "voters"
"""In the server's state: the numbers of the clients that voted in the last round, int64."""


@config_class
class Sign(Compressor):
    """Only the signs of a displacement's entries are sent; the sign of 0 is +1.

    A client that took part in the round before downloads the result of its vote, in one bit per entry, or in two if
    the number of voters was even, so that ties are possible. Other clients download the whole model in float32, as do
    all clients of strategies with several models.

    Attributes:
        rule: ``scaled``: with their mean magnitude ‖v‖₁ / d; ``vote``: only signs, and the server moves every entry by
            ``vote_step`` in the majority's direction.
        vote_step: η_g > 0, the size of a vote's change of an entry; a tie changes nothing.
        scope: of a scale: ``tensor``: every parameter tensor is compressed by itself, because the scales of layers
            differ; ``vector``: all parameters are one vector. A vote has no scale.
    """

    rule: Literal["scaled", "vote"]
    vote_step: Annotated[float, Gt(0), NoEffect("rule", ("scaled",))]
    scope: Annotated[Literal["tensor", "vector"], Neutral("vector"), NoEffect("rule", ("vote",))]

    @property
    def votes(self) -> bool:
        """Whether the server takes a vote."""
        return self.rule == "vote"

    @property
    def by_tensor(self) -> bool:
        return self.scope == "tensor" and not self.votes

    def compress(self, vector: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        signs = torch.where(vector >= 0, 1.0, -1.0)
        # (‖v‖₁ / d) sign(v), or sign(v)
        return signs if self.votes else signs * vector.abs().mean()

    def slots(self) -> Vectors:
        return {VOTERS: torch.empty(0, dtype=torch.int64)} if self.votes else {}

    def download_bytes(self, entries: int, clients: torch.Tensor, slots: Vectors) -> torch.Tensor | None:
        if VOTERS not in slots or self.changes_downloads:  # a vote does not turn one rounded model into the next
            return super().download_bytes(entries, clients, slots)
        voters = slots[VOTERS].cpu()
        bits = 1 if len(voters) % 2 else 2
        return torch.where(torch.isin(clients, voters), -(-bits * entries // 8), FLOAT * entries)

    @property
    def changes_means(self) -> bool:
        return self.votes or type(self).combine is not Sign.combine

    def weights(self, senders: Senders) -> torch.Tensor | None:
        return uniform(senders) if self.votes else None

    def combine(self, displacements: Vectors, update: CohortUpdate, slots: Vectors, round: Round) -> Combined:
        # x ← x + η_g sign(Σ_k sign D_k), the sign of 0 being 0
        # (a sum of signs is a whole number, so that a tie survives the rounding of the mean)
        clients = update.total_weight
        votes = {name: self.vote_step * (mean * clients).round().sign() for name, mean in displacements.items()}
        return Combined(votes, {VOTERS: update.clients}, {}, len(update.clients))

    def size(self, entries: int) -> int:
        return -(-entries // 8) + (0 if self.votes else FLOAT)
