"""Samples dealt at random."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.federation import Federation
from fedrun.partitions.base import Partition
from fedrun.partitions.dealing import consecutive, even_sizes
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.randomness import numpy_generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IID(Partition):
    """A random permutation of the training samples, cut into equal parts (McMahan et al., 2017).

    Where the sizes cannot be equal, the first clients have one sample more. Drawn from the addressed generator
    ``(seed, "partition")``.

    Attributes:
        clients: N, number of clients.
        seed: of the permutation; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        total = len(training_targets(dataset, "iid", self.clients, f"clients={self.clients}"))
        rng = numpy_generator(seed if self.seed is None else self.seed, "partition")
        return pooled_federation(dataset, consecutive(rng.permutation(total), even_sizes(total, self.clients)))
