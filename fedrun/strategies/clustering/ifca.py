"""IFCA: clients choose the model with the least loss (Ghosh et al., NeurIPS 2020, arXiv 2006.04088)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.clustering.base import Assignment, ClusteringRound, SeveralModels, reassigned
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.system.randomness import generator


@config_class
class IFCA(SeveralModels):
    """In every round a participant trains the model with the least mean loss on its training samples.

    Attributes:
        same_init: whether all models have the same initial parameters, as in FedConcat's script. It measures each
            model's loss on other random batches, so the choice in the first round is random. False, as IFCA requires:
            the models have different initial parameters.
    """

    same_init: bool

    downloads_all: ClassVar[bool] = True

    @property
    def same_initialisation(self) -> bool:
        return self.same_init

    def assign(self, context: TrainingContext, round: ClusteringRound) -> Assignment:
        def losses(client: int) -> torch.Tensor:
            means = [context.results(model, client).mean_loss for model in round.models]
            return torch.tensor(means, dtype=torch.float64)

        if self.same_init and round.index == 0:
            draw = generator(context.seed, "clusters/first", round.index)
            return Assignment(reassigned(round, torch.randint(len(round.models), round.cohort.shape, generator=draw)))
        clusters = round.query(round.cohort, losses).nan_to_num(nan=torch.inf).argmin(1)
        return Assignment(reassigned(round, clusters), round.passes(round.cohort))
