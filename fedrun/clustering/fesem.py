"""FeSEM: expectation maximisation over clients' models (Long et al., WWWJ 2023, arXiv 2005.01026)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.client_memory import ClientMemory
from fedrun.clustering.base import Choice, Clustering, Place, one_hot
from fedrun.executors.base import LAST
from fedrun.randomness import generator
from fedrun.recipe import STRICT

UNKNOWN = -1.0
"""In the place of the distances from a client's last model, where it has sent none yet."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FeSEM(Clustering):
    """A participant trains the model that is nearest to its own last one, by Euclidean distance over all of θ.

    All models start alike; clients that take part for the first time are dealt out to them at random, as evenly as
    possible.

    Attributes:
        clusters: K ≥ 1 models.
    """

    keeps_last: ClassVar[bool] = True

    clusters: Annotated[int, Ge(1)]

    @property
    def several(self) -> bool:
        return True

    @property
    def initial_models(self) -> int:
        return self.clusters

    def chosen(
        self,
        place: Place,
        round: int,
        cohort: torch.Tensor,
        models: Sequence[torch.Tensor],
        membership: torch.Tensor,
        memory: ClientMemory,
    ) -> Choice:
        def distances(client: int) -> torch.Tensor:
            held = memory.held.get(client, {})
            if LAST not in held:
                return torch.full((len(models),), UNKNOWN)
            last = held[LAST].to(models[0])
            return torch.stack([(model - last).square().sum() for model in models]).cpu()

        found = place.asked(cohort, distances)
        clusters = found.argmin(1)
        new = (found == UNKNOWN).all(1).nonzero().flatten()
        order = torch.randperm(len(new), generator=generator(place.seed, "clusters/first", round))
        clusters[new[order]] = torch.arange(len(new)) % len(models)
        membership = membership.clone()
        membership[cohort] = one_hot(clusters, len(models))
        return Choice(membership)
