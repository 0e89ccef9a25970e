"""Partitions of a publisher's training split: its test split stays whole, as one pooled test set."""

from __future__ import annotations

import numpy as np
import torch

from fedrun.datasets.base import Dataset
from fedrun.errors import InputError
from fedrun.federation import Federation, Shares


def training_targets(dataset: Dataset, partition: str, parts: int, needs: str) -> np.ndarray:
    """The targets of the training samples, int64 ``[train_size]``.

    Args:
        dataset: the samples.
        partition: the partition's name, for the error messages.
        parts: number of samples that the partition needs at least.
        needs: what needs them, in the words of the configuration, such as ``clients=100``.

    Raises:
        InputError: the dataset has no test split, or fewer training samples than ``parts``.
    """
    size = dataset.train_size
    if size >= len(dataset.targets):
        raise InputError(
            f"partition={partition} needs a dataset with a test split, but all {size} samples of this one are training "
            "samples; allowed here: partition=natural, which holds out users"
        )
    if parts > size:
        raise InputError(
            f"partition={partition}: {needs} needs at least {parts} training samples, the dataset has {size}"
        )
    return dataset.targets[:size].numpy()


def pooled_federation(dataset: Dataset, train: Shares) -> Federation:
    """The federation whose clients are ``train`` and whose test set is the test split, held by one holder ``test``."""
    samples = torch.arange(dataset.train_size, len(dataset.targets))
    return Federation(dataset, train, Shares(samples, torch.tensor([0, len(samples)]), ("test",)))
