"""Pathological non-IID data: every client sees a few labels only."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.federation import Federation
from fedrun.partitions.base import Partition
from fedrun.partitions.dealing import consecutive, even_sizes, piles_of_classes, positions_in, starts_of
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.randomness import numpy_generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Shards(Partition):
    """Label-sorted samples cut into shards, of which each client gets a few at random (McMahan et al., 2017).

    Samples of one label keep their order. Shards are of equal size; where they cannot be, the first ones have one
    sample more. Drawn from the addressed generator ``(seed, "partition")``.

    Attributes:
        clients: N, number of clients.
        shards_per_client: 2 in the paper: at most about two labels per client.
        seed: of the shards' allocation; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    shards_per_client: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        count = self.clients * self.shards_per_client
        needs = f"clients={self.clients} with shards_per_client={self.shards_per_client}"
        targets = training_targets(dataset, "shards", count, needs)
        samples, _ = piles_of_classes(targets, dataset.spec.classes)
        sizes = even_sizes(len(targets), count)
        rng = numpy_generator(seed if self.seed is None else self.seed, "partition")
        hands = rng.permutation(count)
        held = sizes[hands].reshape(self.clients, self.shards_per_client).sum(1)
        return pooled_federation(
            dataset, consecutive(samples[positions_in(starts_of(sizes)[hands], sizes[hands])], held)
        )
