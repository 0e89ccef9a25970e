"""Power-of-Choice: clients with large losses take part (Cho, Wang, Joshi, 2020, arXiv 2010.01243, section 4)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Candidates, Participation
from fedrun.system.randomness import numpy_generator


@config_class
class PowerOfChoice(Participation):
    """π_pow-d: of d candidates, the M with the largest loss F_k(w) take part.

    F_k(w) is the loss of the model that client k uses: the global one, its cluster's, or its own.

    The paper weights the M uploads equally: ``strategy.server.weighting=uniform``.

    Attributes:
        candidates: d as a multiple of M, at least 1; at most all clients are candidates.
    """

    candidates: Annotated[float, Ge(1)]

    def participants(self, candidates: Candidates) -> tuple[torch.Tensor, dict[str, float]]:
        sizes = candidates.samples.double()
        count = min(len(sizes), round(self.candidates * candidates.size))
        # A: d clients without replacement, with probabilities p_k = n_k / Σ_j n_j
        random = numpy_generator(candidates.seed, "selection", candidates.round)
        drawn = torch.from_numpy(random.choice(len(sizes), count, replace=False, p=(sizes / sizes.sum()).numpy()))
        # S = the M largest F_k(w) of k in A; ties in the random order of the draw
        order = candidates.losses(drawn).argsort(descending=True, stable=True)
        return drawn[order[: candidates.size]], {}
