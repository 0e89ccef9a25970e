"""Label skew: each class is divided among the clients in Dirichlet proportions."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.offsets import offsets_of
from fedrun.data.partitions.index_groups import shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test
from fedrun.system.errors import InputError


@config_class
class DirichletProportions(TrainSplitPartition):
    """Base class of NIID-Bench's two partitions with p ~ Dir(β 1_N) (Li, Diao, Chen, He, ICDE 2022).

    Attributes (besides those of :class:`TrainSplitPartition`):
        seed: taken modulo 2³².
        beta: β > 0, the concentration, at most 1e300: a draw's sum overflows beyond; NIID-Bench usually takes 0.5.
        min_samples: smallest number of training samples of a client; 10 in NIID-Bench.
    """

    beta: Annotated[float, Gt(0), Le(1e300)]
    min_samples: Annotated[int, Ge(1)]

    def draws_exhausted(self, draws: int) -> InputError:
        """The error after this many draws, none of which gave every client enough samples."""
        return InputError(
            f"{self.choice}: in each of {draws} draws some client had fewer than "
            f"min_samples={self.min_samples} samples; use a larger beta than {self.beta:g}, fewer clients than "
            f"{self.clients} or a smaller min_samples"
        )


@config_class
class Dirichlet(DirichletProportions):
    """p_c ~ Dir(β 1_N) divides class c among the N clients (NIID-Bench: Li, Diao, Chen, He, ICDE 2022; FedConcat).

    A client that already has n/N samples gets none of the following classes and keeps what it has. The whole draw is
    repeated until the smallest client has ``min_samples``. The generator is NumPy's legacy ``RandomState(seed)`` and
    draws in NIID-Bench's order, so its partitions are reproduced index by index. Where p_c is zero for every client
    that may still get samples, NIID-Bench divides by zero; here that draw is repeated.

    Attributes (besides those of :class:`DirichletProportions`):
        beta: β > 0, the concentration; small values give few classes per client; NIID-Bench usually takes 0.5.
    """

    needs_classes: ClassVar[bool] = True

    attempts: ClassVar[int] = 10_000
    """Draws after which the partition fails."""

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset, self.min_samples, "min_samples")
        rng = self.legacy_generator(seed)
        sorted_samples, class_sizes = sort_by_class(targets, dataset.spec.classes)
        for _ in range(self.attempts):
            samples = sorted_samples.copy()
            counts = self._draw(samples, class_sizes, rng)
            if counts.sum(0).min() >= self.min_samples:
                train = split_groups(samples, counts)
                shuffle_groups(train.samples.numpy(), counts.sum(0), rng)
                return with_pooled_test(dataset, train)
        raise self.draws_exhausted(self.attempts)

    def _draw(self, samples: np.ndarray, class_sizes: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """One draw: shuffle each class of ``samples`` in place; number of its samples per client, int64 ``[C, N]``."""
        offsets = offsets_of(class_sizes)
        counts = np.zeros((len(class_sizes), self.clients), dtype=np.int64)
        client_sizes = np.zeros(self.clients, dtype=np.int64)
        for label, size in enumerate(class_sizes.tolist()):
            rng.shuffle(samples[offsets[label] : offsets[label + 1]])
            proportions = self._proportions(client_sizes < len(samples) / self.clients, rng, empty=size == 0)
            cuts = (np.cumsum(proportions) * size).astype(np.int64)[:-1]
            counts[label] = np.diff(cuts, prepend=0, append=size)
            client_sizes += counts[label]
        return counts

    def _proportions(self, below_cap: np.ndarray, rng: np.random.RandomState, empty: bool) -> np.ndarray:
        """One class's proportions over the clients, ``[N]``; a class without samples also draws, and gets zeros."""
        for _ in range(self.attempts):
            proportions: np.ndarray = np.where(below_cap, rng.dirichlet(np.full(self.clients, self.beta)), 0.0)
            if empty:
                return np.zeros(self.clients)
            total = proportions.sum()
            # With a tiny beta the gamma variates underflow, and NumPy returns NaN or infinity.
            if 0 < total < np.inf:
                proportions /= total
                return proportions
        raise InputError(f"{self.choice}: beta={self.beta:g} is too small to draw proportions; use a larger beta")
