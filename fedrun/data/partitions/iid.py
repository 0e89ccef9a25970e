"""Samples divided at random into equal parts."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.index_groups import even_sizes, split_consecutive
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test


@config_class
class IID(TrainSplitPartition):
    """A random permutation of the training samples, cut into equal parts (McMahan et al., 2017).

    If the sizes cannot be equal, the first clients have one sample more.
    """

    def split(self, dataset: Dataset, seed: int) -> Federation:
        total = len(self.training_targets(dataset))
        rng = self.generator(seed)
        return with_pooled_test(dataset, split_consecutive(rng.permutation(total), even_sizes(total, self.clients)))
