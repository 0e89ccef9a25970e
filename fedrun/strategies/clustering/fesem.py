"""FeSEM: expectation maximisation over clients' models (Long et al., WWWJ 2023, arXiv 2005.01026)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.client_state import LAST
from fedrun.strategies.clustering.base import Assignment, ClusteringRound, SeveralModels, reassigned
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.system.randomness import generator

UNKNOWN = -1.0
"""The distance of clients that have not sent a model yet."""


@config_class
class FeSEM(SeveralModels):
    """A participant trains the model that is nearest to the model it sent last, by Euclidean distance over all of θ.

    All models have the same initial parameters. Clients that take part for the first time join, in random order, the
    model that has the fewest clients.
    """

    stores_last_upload: ClassVar[bool] = True

    def assign(self, context: TrainingContext, round: ClusteringRound) -> Assignment:
        models = round.models

        def distances(client: int) -> torch.Tensor:
            held = round.client_states.held.get(client, {})
            if LAST not in held:
                return torch.full((len(models),), UNKNOWN)
            last = held[LAST].to(models[0])
            return torch.stack([(model - last).square().sum() for model in models]).cpu()

        measured = round.query(round.cohort, distances)
        clusters = measured.argmin(1)
        new = (measured == UNKNOWN).all(1).nonzero().flatten()
        order = torch.randperm(len(new), generator=generator(context.seed, "clusters/first", round.index))
        counts = round.membership.sum(0)
        for client in new[order]:
            clusters[client] = fewest = counts.argmin()
            counts[fewest] += 1
        return Assignment(reassigned(round, clusters))
