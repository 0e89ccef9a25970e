"""Every client takes part independently with the same probability, as user-level privacy accounts for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Candidates, Participation
from fedrun.system.randomness import numpy_generator


@config_class
class Poisson(Participation):
    """Every client takes part with the probability M / N, independently of the others.

    The number of participants varies, and may be 0. ``privacy.sampling=poisson`` chooses this rule.
    """

    varies: ClassVar[bool] = True

    @property
    def known_in_advance(self) -> bool:
        return type(self).participants is Poisson.participants

    def draws(self, candidates: Candidates) -> Iterator[torch.Tensor]:
        """Independent draws of the participants, int64 ``[C]`` each; the first one counts."""
        clients = len(candidates.samples)
        random = numpy_generator(candidates.seed, "selection", candidates.round)
        while True:
            # k is in S with probability M / N
            yield torch.from_numpy((random.random(clients) < candidates.size / clients).nonzero()[0])

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        return next(self.draws(candidates)), {}
