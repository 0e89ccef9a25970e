"""FedAwS: averaging, then spreading out the class embeddings (Yu et al., ICML 2020, arXiv 2004.10342).

This is the form that TurboSVM-FL's authors compare with: clients use ordinary cross-entropy, and the regulariser is the
sum of the positive cosines between embeddings.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.head_refinement import HeadRefinement, Refined
from fedrun.strategies.server import CohortUpdate, Round


def positive_cosines(embeddings: torch.Tensor) -> torch.Tensor:
    """Σ_{c<c'} max(cos(u_c, u_c'), 0) of embeddings ``[C, d]``: a differentiable scalar."""
    directions = torch.nn.functional.normalize(embeddings, dim=-1)
    return (directions @ directions.T).triu(1).relu().sum()


@config_class
class FedAwS(HeadRefinement):
    """After the base's aggregation, one Adam step on the logit layer against the sum of positive cosines."""

    moments: ClassVar[str] = "fedaws"

    def refine(self, embeddings: torch.Tensor, update: CohortUpdate, round: Round) -> Refined:
        moving = embeddings.clone().requires_grad_()
        loss = positive_cosines(moving)
        (gradient,) = torch.autograd.grad(loss, moving)
        return Refined(embeddings, gradient, {"spread_out_loss": loss.item()})
