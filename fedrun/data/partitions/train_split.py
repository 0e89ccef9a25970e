"""Partitions of a publisher's training split. The test split becomes one pooled test set."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.system.errors import InputError
from fedrun.system.randomness import chosen_seed, numpy_generator


@config_class
class TrainSplitPartition(Partition):
    """Base class of partitions of a publisher's training split.

    Attributes:
        clients: N, number of clients.
        seed: seed of all draws; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def own_seed(self, seed: int) -> int:
        """The partition's seed or, if it is None, the run's ``seed``."""
        return chosen_seed(self.seed, seed)

    def generator(self, seed: int) -> np.random.Generator:
        """A NumPy generator seeded with a hash of ``(own_seed, "partition")``; see :mod:`fedrun.system.randomness`."""
        return numpy_generator(self.own_seed(seed), "partition")

    def legacy_generator(self, seed: int) -> np.random.RandomState:
        """NumPy's ``RandomState``, the generator of NIID-Bench, with :meth:`own_seed` modulo 2³²."""
        return np.random.RandomState(self.own_seed(seed) % 2**32)

    def training_targets(self, dataset: Dataset, per_client: int = 1, key: str | None = None) -> np.ndarray:
        """The targets of the training samples, int64 ``[train_size]``.

        Args:
            dataset: the samples.
            per_client: least number of samples per client.
            key: the setting that determines ``per_client``; None if there is none.

        Raises:
            InputError: the dataset has no test split, or too few training samples.
        """
        size, needed = dataset.train_size, self.clients * per_client
        if size >= len(dataset.targets):
            remedy = (
                "data with test samples: of a table, dataset.test_share=0.2 draws some, dataset.split=COLUMN has them"
            )
            if dataset.users is not None:
                remedy = f"partition=natural, which holds out users; or {remedy}"
            raise InputError(
                f"{self.choice} needs a dataset with a test split, but all {size} samples of this one are "
                f"training samples; allowed here: {remedy}"
            )
        if needed > size:
            settings = f"clients={self.clients}" + ("" if key is None else f" with {key}={per_client}")
            raise InputError(
                f"{self.choice}: {settings} needs at least {needed} training samples, the dataset has {size}"
            )
        return dataset.targets[:size].numpy()


def with_pooled_test(dataset: Dataset, train: ClientIndices) -> Federation:
    """The federation with the clients ``train`` and the whole test split as pooled test set, named ``test``."""
    samples = torch.arange(dataset.train_size, len(dataset.targets))
    return Federation(dataset, train, ClientIndices.single(samples, "test"))
