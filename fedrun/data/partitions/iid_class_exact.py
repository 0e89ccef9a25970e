"""Samples dealt at random, equally many of each class to every client."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.dealing import deal, piles_of_classes, shuffle_piles
from fedrun.data.partitions.publisher_split import PublisherSplit, pooled_federation
from fedrun.system.errors import InputError


@config_class
class IIDClassExact(PublisherSplit):
    """Every client gets 1/N of each class at random: FedDC's balanced iid split of CIFAR-100 (Gao et al., 2022).

    Drawn from the addressed generator ``(seed, "partition")``.

    Attributes:
        clients: see :class:`PublisherSplit`; must divide every class's number of training samples.
        seed: see :class:`PublisherSplit`.
    """

    name: ClassVar[str] = "iid_class_exact"

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset)
        samples, class_sizes = piles_of_classes(targets, dataset.spec.classes)
        for label in np.flatnonzero(class_sizes % self.clients)[:1]:
            raise InputError(
                f"partition=iid_class_exact: clients={self.clients} does not divide the {class_sizes[label]} training "
                f"samples of class {dataset.class_names[label]}; partition=iid has no such condition"
            )
        shuffle_piles(samples, class_sizes, self.generator(seed))
        counts = np.repeat(class_sizes[:, None] // self.clients, self.clients, axis=1)
        return pooled_federation(dataset, deal(samples, counts))
