"""Every client takes part independently with the same probability, as in the codes of FedDyn and FedDC."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Candidates
from fedrun.experiment.participation.poisson import Poisson


@config_class
class Bernoulli(Poisson):
    """Poisson sampling of the participants, without empty rounds.

    If none would take part, all are drawn again. ``clients/participants`` records the number.
    """

    @property
    def known_in_advance(self) -> bool:
        return type(self).participants is Bernoulli.participants

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        drawn = next(draw for draw in self.draws(candidates) if len(draw))
        return drawn, {"clients/participants": float(len(drawn))}
