"""Datasets small enough to be read into memory whole."""

from __future__ import annotations

import numpy as np
import torch

from fedrun.datasets.augmentation import Augmentation
from fedrun.datasets.base import Dataset, Encoding, Spec
from fedrun.datasets.fingerprint import fingerprint
from fedrun.errors import InputError

Arrays = tuple[np.ndarray, np.ndarray]
"""Samples uint8 ``[n, *input_shape]`` and classes ``[n]`` of any integer type."""


def in_memory(
    spec: Spec,
    encoding: Encoding,
    class_names: tuple[str, ...],
    train: Arrays,
    test: Arrays,
    augmentation: Augmentation | None = None,
) -> Dataset:
    """The dataset of a training and a test split that belong to nobody."""
    inputs = np.concatenate([train[0], test[0]])
    targets = np.concatenate([train[1], test[1]]).astype(np.int64)
    return Dataset(
        spec=spec,
        encoding=encoding,
        inputs=torch.from_numpy(inputs),
        targets=torch.from_numpy(targets),
        train_size=len(train[1]),
        users=None,
        class_names=class_names,
        fingerprint=fingerprint([len(train[1]), inputs, targets]),
        augmentation=augmentation,
    )


def require_labels(labels: np.ndarray, allowed: range, where: object) -> None:
    """Refuse labels ``[n]`` outside a range.

    Args:
        labels: as the source has them.
        allowed: at least one.
        where: the source's name, for the message.

    Raises:
        InputError: one line with the first label that is not allowed.
    """
    wrong = (labels < allowed[0]) | (labels > allowed[-1])
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(f"{where}: label {first} is {labels[first]}; labels are {allowed[0]} to {allowed[-1]}")
