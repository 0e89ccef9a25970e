"""Every client takes part independently with the same probability, as in the codes of FedDyn and FedDC."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Candidates, Participation
from fedrun.system.randomness import numpy_generator


@config_class
class Bernoulli(Participation):
    """Every client takes part with the probability M / N, independently of the others, so their number varies.

    If none would take part, all are drawn again. ``clients/participants`` records the number.
    """

    @property
    def known_in_advance(self) -> bool:
        return True

    @property
    def varies(self) -> bool:
        return True

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        clients = len(candidates.samples)
        random = numpy_generator(candidates.seed, "selection", candidates.round)
        drawn: list[int] = []
        while not drawn:
            # k is in S with probability M / N
            drawn = (random.random(clients) < candidates.size / clients).nonzero()[0].tolist()
        return torch.tensor(drawn), {"clients/participants": float(len(drawn))}
