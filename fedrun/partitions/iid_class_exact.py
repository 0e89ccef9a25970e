"""Samples dealt at random, equally many of each class to every client."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.errors import InputError
from fedrun.federation import Federation
from fedrun.partitions.base import Partition
from fedrun.partitions.dealing import deal, piles_of_classes, shuffle_piles
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.randomness import numpy_generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IIDClassExact(Partition):
    """Every client gets 1/N of each class at random: FedDC's balanced iid split of CIFAR-100 (Gao et al., 2022).

    Drawn from the addressed generator ``(seed, "partition")``.

    Attributes:
        clients: N, number of clients; must divide every class's number of training samples.
        seed: of the samples' order; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = training_targets(dataset, "iid_class_exact", self.clients, f"clients={self.clients}")
        samples, class_sizes = piles_of_classes(targets, dataset.spec.classes)
        for label in np.flatnonzero(class_sizes % self.clients)[:1]:
            raise InputError(
                f"partition=iid_class_exact: clients={self.clients} does not divide the {class_sizes[label]} training "
                f"samples of class {dataset.class_names[label]}; partition=iid has no such condition"
            )
        shuffle_piles(samples, class_sizes, numpy_generator(seed if self.seed is None else self.seed, "partition"))
        counts = np.repeat(class_sizes[:, None] // self.clients, self.clients, axis=1)
        return pooled_federation(dataset, deal(samples, counts))
