"""Samples divided at random into equal parts, index for index as in NIID-Bench."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.index_groups import even_sizes, split_consecutive
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test


@config_class
class IIDNiidBench(TrainSplitPartition):
    """``homo`` of NIID-Bench (Li, Diao, Chen, He, ICDE 2022): a permutation cut as by ``numpy.array_split``.

    If the sizes cannot be equal, the first clients have one sample more. The generator is NumPy's legacy
    ``RandomState(seed)``, which gives the stream of ``numpy.random.seed(seed)`` in NIID-Bench's script.
    :class:`fedrun.data.partitions.iid.IID` has the same law and another stream.

    Attributes (besides those of :class:`TrainSplitPartition`):
        seed: taken modulo 2³².
    """

    def split(self, dataset: Dataset, seed: int) -> Federation:
        total = len(self.training_targets(dataset))
        samples = self.legacy_generator(seed).permutation(total)
        return with_pooled_test(dataset, split_consecutive(samples, even_sizes(total, self.clients)))
