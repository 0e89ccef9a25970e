"""FeSEM: expectation maximisation over clients' models (Long et al., WWWJ 2023, arXiv 2005.01026)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass

from fedrun.clustering.base import Choice, Place, SeveralModels, Turn, reassigned
from fedrun.executors.base import LAST
from fedrun.randomness import generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FeSEM(SeveralModels):
    """A participant trains the model that is nearest to its own last one, by Euclidean distance over all of θ.

    All models start alike; clients that take part for the first time are dealt out to them at random, as evenly as
    possible.
    """

    keeps_last: ClassVar[bool] = True

    def chosen(self, place: Place, turn: Turn) -> Choice:
        last = [turn.memory.held.get(client, {}).get(LAST) for client in turn.cohort.tolist()]
        clusters = torch.empty(len(last), dtype=torch.int64)
        new = torch.tensor([model is None for model in last]).nonzero().flatten()
        order = torch.randperm(len(new), generator=generator(place.seed, "clusters/first", turn.round))
        clusters[new[order]] = torch.arange(len(new)) % len(turn.models)
        for position, own in enumerate(last):
            if own is not None:
                distances = [(model - own.to(model)).square().sum() for model in turn.models]
                clusters[position] = torch.stack(distances).argmin()
        return Choice(reassigned(turn, clusters))
