"""Clients that take part only if the global model appeals to them (MaxFL: Cho et al., TMLR 2024, arXiv 2205.14840)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Candidates, Participation, select


@config_class
class Flexible(Participation):
    """After the first rounds, only clients whose training loss F_k(w) is below ρ_k are available for selection.

    If fewer clients are available than a round needs, all of them take part. If none is available, the model does not
    change and the round counts. ``clients/willing`` and ``clients/participants`` record the numbers.

    Attributes:
        mandatory_share: share of the rounds, from the first on, in which every client takes part when selected.
        draws: ``draw_willing``: the participants are drawn from the willing clients; ``draw_then_drop``: they are drawn
            from all clients, and those who are not willing are dropped.
    """

    mandatory_share: Annotated[float, Ge(0), Le(1)]
    draws: Literal["draw_willing", "draw_then_drop"]

    needs_thresholds: ClassVar[bool] = True

    def fewest(self, size: int, clients: int, rounds: int) -> int:
        return size if self.mandatory(rounds - 1, rounds) else 1

    def mandatory(self, round: int, rounds: int) -> bool:
        """Whether every selected client must take part in round t = 0, 1, .. of T."""
        return round < math.ceil(self.mandatory_share * rounds - 1e-9)

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        clients = torch.arange(len(candidates.samples))
        willing = torch.ones(len(clients), dtype=torch.bool)
        if not self.mandatory(candidates.round, candidates.rounds):
            # F_k(w) < ρ_k
            willing = candidates.losses(clients) < candidates.thresholds()
        if self.draws == "draw_then_drop":
            drawn = select(candidates.seed, candidates.round, len(clients), candidates.size)
            chosen = drawn[willing[drawn]]
        else:
            available = clients[willing]
            count = min(candidates.size, len(available))
            chosen = available[select(candidates.seed, candidates.round, len(available), count)] if count else available
        return chosen, {"clients/willing": float(willing.sum()), "clients/participants": float(len(chosen))}
