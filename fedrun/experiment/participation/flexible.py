"""Clients that take part only if the global model appeals to them (MaxFL: Cho et al., TMLR 2024, arXiv 2205.14840)."""

from __future__ import annotations

import math
from typing import Annotated

from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Participation, Rule


@config_class
class Flexible(Participation):
    """After the first rounds, only clients whose training loss F_k(w) is below ρ_k are available for selection.

    If fewer clients are available than a round needs, all of them take part. If none is available, the model does not
    change and the round counts. ``clients/willing`` and ``clients/participants`` record the numbers.

    Attributes:
        mandatory_share: share of the rounds, from the first on, in which every client takes part when selected.
        draws: see :attr:`fedrun.experiment.participation.base.Participation.rule`.
    """

    mandatory_share: Annotated[float, Ge(0), Le(1)]
    draws: Rule

    @property
    def by_appeal(self) -> bool:
        return True

    @property
    def rule(self) -> Rule:
        return self.draws

    def mandatory(self, round: int, rounds: int) -> bool:
        return round < math.ceil(self.mandatory_share * rounds - 1e-9)
