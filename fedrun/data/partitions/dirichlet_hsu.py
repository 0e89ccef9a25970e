"""Label skew: every client has its own class distribution around the global one."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.class_sampling import draw_counts, log_dirichlet
from fedrun.data.partitions.index_groups import even_sizes, shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test


@config_class
class DirichletHsu(TrainSplitPartition):
    """Client k draws q_k ~ Dir(α p), then its n/N samples by q_k (Hsu, Qi, Brown, 2019, arXiv 1909.06335).

    p is the distribution of the classes among the training samples. One client after another draws without
    replacement. q_k is renormalised over the classes that are not yet empty, so the last clients get the remaining
    samples. If N does not divide n, the first clients have one sample more.

    Attributes (besides those of :class:`TrainSplitPartition`):
        alpha: α, from 1e-6 to 1e300, the concentration; small values give about one class per client, large ones
            give p.
    """

    alpha: Annotated[float, Ge(1e-6), Le(1e300)]

    needs_classes: ClassVar[bool] = True

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset)
        rng = self.generator(seed)
        samples, class_sizes = sort_by_class(targets, dataset.spec.classes)
        shuffle_groups(samples, class_sizes, rng)
        log_priors = log_dirichlet(self.alpha * class_sizes / len(targets), self.clients, rng)
        sizes, begins = even_sizes(len(targets), self.clients), np.arange(float(self.clients))
        counts = draw_counts(sizes, begins, np.ones(self.clients), log_priors, class_sizes, rng)
        return with_pooled_test(dataset, split_groups(samples, counts))
