"""Label skew: each class is spread over the clients in Dirichlet proportions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.dirichlet_proportions import DirichletProportions
from fedrun.data.partitions.index_groups import offsets_of, shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import with_pooled_test
from fedrun.system.errors import InputError


@config_class
class Dirichlet(DirichletProportions):
    """p_c ~ Dir(β 1_N) shares class c out over the N clients (NIID-Bench: Li, Diao, Chen, He, ICDE 2022; FedConcat).

    A client that already holds n/N samples gets nothing of the classes that follow (what it has it keeps), and the
    whole draw is repeated until the smallest client has ``min_samples``. NumPy's legacy ``RandomState(seed)`` is asked
    in NIID-Bench's order, so that its partitions are reproduced index by index; a draw that would divide by zero there
    (p_c is zero for every client that may still get samples) is repeated here.

    Attributes:
        clients: see :class:`TrainSplitPartition`.
        beta: β > 0, the concentration; small values give few classes per client, 0.5 is NIID-Bench's usual one.
        min_samples: see :class:`DirichletProportions`.
        seed: see :class:`DirichletProportions`.
    """

    name: ClassVar[str] = "dirichlet"

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset, self.min_samples, "min_samples")
        rng = self.legacy_generator(seed)
        unshuffled, class_sizes = sort_by_class(targets, dataset.spec.classes)
        for _ in range(self.attempts):
            samples = unshuffled.copy()
            counts = self._draw(samples, class_sizes, rng)
            if counts.sum(0).min() >= self.min_samples:
                train = split_groups(samples, counts)
                shuffle_groups(train.samples.numpy(), counts.sum(0), rng)
                return with_pooled_test(dataset, train)
        raise self.draws_exhausted()

    def _draw(self, samples: np.ndarray, class_sizes: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """One draw: shuffles the classes in ``samples`` in place; each client's part of each, int64 ``[C, N]``."""
        offsets = offsets_of(class_sizes)
        counts = np.zeros((len(class_sizes), self.clients), dtype=np.int64)
        held = np.zeros(self.clients, dtype=np.int64)
        for label, size in enumerate(class_sizes.tolist()):
            rng.shuffle(samples[offsets[label] : offsets[label + 1]])
            shares = self._proportions(held < len(samples) / self.clients, rng, empty=size == 0)
            cuts = (np.cumsum(shares) * size).astype(np.int64)[:-1]
            counts[label] = np.diff(cuts, prepend=0, append=size)
            held += counts[label]
        return counts

    def _proportions(self, below_cap: np.ndarray, rng: np.random.RandomState, empty: bool) -> np.ndarray:
        """One class's proportions over the clients, ``[N]``; zeros for a class without samples, which still draws."""
        for _ in range(self.attempts):
            shares: np.ndarray = np.where(below_cap, rng.dirichlet(np.full(self.clients, self.beta)), 0.0)
            if empty:
                return np.zeros(self.clients)
            total = shares.sum()
            # A tiny beta's gamma draws underflow, and NumPy then returns NaN or infinity.
            if 0 < total < np.inf:
                shares /= total
                return shares
        raise InputError(f"partition=dirichlet: beta={self.beta:g} is too small to draw proportions; use a larger beta")
