"""Samples divided at random, with equally many of each class for every client."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.index_groups import shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test
from fedrun.system.errors import InputError


@config_class
class IIDClassExact(TrainSplitPartition):
    """Every client gets 1/N of each class at random: FedDC's balanced iid split of CIFAR-100 (Gao et al., 2022).

    Attributes (besides those of :class:`TrainSplitPartition`):
        clients: must divide every class's number of training samples.
    """

    needs_classes: ClassVar[bool] = True

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset)
        samples, class_sizes = sort_by_class(targets, dataset.spec.classes)
        for label in np.flatnonzero(class_sizes % self.clients)[:1]:
            raise InputError(
                f"{self.choice}: clients={self.clients} does not divide the {class_sizes[label]} training "
                f"samples of class {dataset.class_names[label]}; allowed: partition=iid for any number"
            )
        shuffle_groups(samples, class_sizes, self.generator(seed))
        counts = np.repeat(class_sizes[:, None] // self.clients, self.clients, axis=1)
        return with_pooled_test(dataset, split_groups(samples, counts))
