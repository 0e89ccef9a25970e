"""Label skew: every client has samples of k classes only."""

from __future__ import annotations

import random
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.index_groups import even_sizes, shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test
from fedrun.system.errors import InputError


@config_class
class Labels(TrainSplitPartition):
    """#C = k: every client owns k classes; a class is divided evenly among its owners (NIID-Bench; FedConcat).

    Client i owns class i mod C and k - 1 others at random. ``random.Random(seed)`` draws the classes and NumPy's
    legacy ``RandomState(seed)`` the order of a class's samples, both in NIID-Bench's order, so its partitions are
    reproduced index by index. Sizes differ because some classes have more owners than others.

    Attributes (besides those of :class:`TrainSplitPartition`):
        labels_per_client: k, from 1 to the dataset's number of classes C.
        seed: taken modulo 2³² for NumPy's generator.
    """

    labels_per_client: Annotated[int, Ge(1)]

    needs_classes: ClassVar[bool] = True

    def split(self, dataset: Dataset, seed: int) -> Federation:
        classes = dataset.spec.classes
        targets = self.training_targets(dataset)
        if self.labels_per_client > classes:
            raise InputError(
                f"{self.choice}: labels_per_client={self.labels_per_client} is more than the dataset's "
                f"{classes} classes"
            )
        samples, class_sizes = sort_by_class(targets, classes)
        shuffle_groups(samples, class_sizes, self.legacy_generator(seed))
        counts = np.zeros((classes, self.clients), dtype=np.int64)
        for label, owners in enumerate(self.owners(classes, random.Random(self.own_seed(seed)))):
            if owners.any():
                counts[label, owners] = even_sizes(class_sizes[label], owners.sum())
            elif class_sizes[label]:
                raise InputError(
                    f"{self.choice}: with clients={self.clients} and labels_per_client={self.labels_per_client} "
                    f"no client owns class {dataset.class_names[label]}, and its samples would be lost; allowed: "
                    f"at least {classes} clients, so that every class has an owner"
                )
        if empty := int((counts.sum(0) == 0).sum()):
            raise InputError(
                f"{self.choice}: {empty} of clients={self.clients} have no sample, because their classes have fewer "
                "samples than owners; use fewer clients or a larger labels_per_client"
            )
        return with_pooled_test(dataset, split_groups(samples, counts))

    def owners(self, classes: int, rng: random.Random) -> np.ndarray:
        """Which clients own each class, bool ``[C, N]``."""
        owned = np.zeros((classes, self.clients), dtype=bool)
        for client in range(self.clients):
            labels = {client % classes}
            while len(labels) < self.labels_per_client:
                labels.add(rng.randint(0, classes - 1))
            owned[list(labels), client] = True
        return owned
