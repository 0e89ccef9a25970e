"""Quantity skew: iid samples, sizes in Dirichlet proportions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.dirichlet_proportions import DirichletProportions
from fedrun.data.partitions.index_groups import split_consecutive
from fedrun.data.partitions.train_split import with_pooled_test


@config_class
class QuantityDirichlet(DirichletProportions):
    """A permutation cut in proportions p ~ Dir(β 1_N) (``iid-diff-quantity`` of NIID-Bench: Li et al., ICDE 2022).

    p is redrawn until its smallest part has ``min_samples``. NumPy's legacy ``RandomState(seed)`` is asked in
    NIID-Bench's order, so that its partitions are reproduced index by index.

    Attributes:
        clients: see :class:`TrainSplitPartition`.
        beta: β > 0, the concentration; small values give very unequal sizes; 0.5 is NIID-Bench's usual one.
        min_samples: see :class:`DirichletProportions`.
        seed: see :class:`DirichletProportions`.
    """

    name: ClassVar[str] = "quantity_dirichlet"

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset, self.min_samples, "min_samples")
        rng = self.legacy_generator(seed)
        samples = rng.permutation(len(targets))
        for _ in range(self.attempts):
            shares = rng.dirichlet(np.full(self.clients, self.beta))
            shares /= shares.sum()
            # False for the NaN that a tiny beta's underflowing gamma draws give.
            if shares.min() * len(targets) >= self.min_samples:
                cuts = (np.cumsum(shares) * len(targets)).astype(np.int64)[:-1]
                sizes = np.diff(cuts, prepend=0, append=len(targets))
                return with_pooled_test(dataset, split_consecutive(samples, sizes))
        raise self.draws_exhausted()
