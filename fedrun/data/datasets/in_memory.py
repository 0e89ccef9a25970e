"""Datasets that are read into memory completely."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch

from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import Dataset, DatasetConfig, Encoding, Scaled, Spec
from fedrun.data.datasets.fingerprint import fingerprint
from fedrun.system.errors import InputError

Arrays = tuple[np.ndarray, np.ndarray]
"""Samples uint8 or float32 ``[n, *input_shape]`` and classes ``[n]`` of any integer type."""

DIVISORS = {"uint8": 255.0, "float32": 1.0}
"""Divisors of stored numbers by type, in :meth:`InMemory.of`."""


@dataclass(frozen=True)
class InMemory(DatasetConfig):
    """A loaded dataset, for an experiment on data that no option of the configuration reads.

    Attributes:
        dataset: the loaded dataset.
    """

    dataset: Dataset

    @classmethod
    def of(cls, train: Arrays, test: Arrays, classes: int) -> InMemory:
        """NumPy arrays as a dataset without users, for every partition except ``natural``.

        Args:
            train: training samples, uint8 (encoded as stored/255) or float32 (unchanged), and their classes.
            test: test samples and their classes.
            classes: C ≥ 2; classes are 0 to C − 1.

        Raises:
            InputError: a type, a shape or a class is not allowed.
        """
        if not isinstance(classes, Integral) or classes < 2:
            raise InputError(f"classes={classes}: allowed: an integer, at least 2")
        train, test = ((np.asarray(inputs), np.asarray(labels)) for inputs, labels in (train, test))
        samples = train[0]
        if samples.ndim < 2 or 0 in samples.shape[1:]:
            raise InputError(f"train: samples {list(samples.shape)}; allowed: [n, ...], numbers for each of n samples")
        for where, (inputs, labels) in {"train": train, "test": test}.items():
            if inputs.dtype.name not in DIVISORS or inputs.dtype != samples.dtype:
                raise InputError(
                    f"{where}: samples are {inputs.dtype}; allowed: uint8 or float32, the same in both splits"
                )
            if (
                inputs.shape[1:] != samples.shape[1:]
                or labels.shape != inputs.shape[:1]
                or labels.dtype.kind not in "iu"
            ):
                raise InputError(
                    f"{where}: samples {list(inputs.shape)} with classes {list(labels.shape)} of {labels.dtype}; "
                    f"allowed: [n, {', '.join(map(str, samples.shape[1:]))}] with integers [n]"
                )
            require_labels(labels, range(classes), where)
            if not np.isfinite(inputs).all():
                raise InputError(f"{where}: samples with NaN or infinity; allowed: finite numbers")
        spec = Spec(tuple(samples.shape[1:]), int(classes))
        encoding = Scaled(DIVISORS[samples.dtype.name])
        return cls(in_memory(spec, encoding, tuple(map(str, range(classes))), train, test))

    @property
    def spec(self) -> Spec:
        return self.dataset.spec

    def as_config(self) -> dict[str, str]:
        """What identifies the data: arrays are no configuration values."""
        return {"data": self.dataset.fingerprint}

    def load(self) -> Dataset:
        return self.dataset


def in_memory(
    spec: Spec,
    encoding: Encoding,
    class_names: tuple[str, ...],
    train: Arrays,
    test: Arrays,
    augmentation: Augmentation | None = None,
) -> Dataset:
    """The dataset of a training and a test split without users."""
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
    """Check that labels ``[n]`` are in a range.

    Args:
        labels: the labels of the source.
        allowed: the range, not empty.
        where: the source's name, for the message.

    Raises:
        InputError: a label is not allowed; the first one is named.
    """
    wrong = (labels < allowed[0]) | (labels > allowed[-1])
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(f"{where}: label {first} is {labels[first]}; labels are {allowed[0]} to {allowed[-1]}")
