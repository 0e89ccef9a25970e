"""Quantity skew: iid samples, lognormal sizes."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.index_groups import lognormal_sizes, split_consecutive
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test


@config_class
class QuantityLognormal(TrainSplitPartition):
    """A permutation cut into parts of lognormal sizes (``unbalanced_sgm`` of FedDyn and FedDC; FedUmf).

    s_k ~ LogNormal(log floor(n/N), σ), scaled to sum to n and rounded down; the first client gets the remainder,
    fewer than N samples.

    Attributes (besides those of :class:`TrainSplitPartition`):
        sigma: σ of the sizes' logarithms; 0.3 in FedDC and FedUmf; 0: equal sizes, within one.
    """

    sigma: Annotated[float, Ge(0)]

    def split(self, dataset: Dataset, seed: int) -> Federation:
        total = len(self.training_targets(dataset))
        rng = self.generator(seed)
        samples = rng.permutation(total)
        sizes = lognormal_sizes(total, self.clients, self.sigma, rng)
        return with_pooled_test(dataset, split_consecutive(samples, sizes))
