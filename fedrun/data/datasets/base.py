"""Datasets: a tensor of samples in a compact type, a tensor of targets, and the users who produced them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from fedrun.data.constants import constants
from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Spec:
    """Shapes that a model needs to know about a dataset, and the task.

    Attributes:
        input_shape: shape of one sample: ``(channels, height, width)`` of an image, ``(length,)`` of a text.
        classes: k, the number of outputs per sample, or per symbol of a text: of a classification, the number of
            classes.
        vocabulary: number of different symbols of a text; None if inputs are numbers.
        task: what is learned.
        padding: the symbol that fills up the end of shorter texts, and that models must not read; None: texts have the
            same length.
    """

    input_shape: tuple[int, ...]
    classes: int
    vocabulary: int | None = None
    task: Task = CLASSIFICATION
    padding: int | None = None

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of a model's outputs for one sample."""
        return self.task.output_shape(self.input_shape, self.classes)


@dataclass(frozen=True)
class Scaled:
    """Encodes stored numbers as network inputs: ``(stored / divisor - mean) / std``, float32.

    ``mean`` and ``std`` have one value per channel (images ``[..., channels, height, width]``) or a single value.
    """

    divisor: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        """Encode a batch ``[..., *input_shape]`` of any numeric type as float32 of the same shape."""
        # stored / (divisor std) - mean / std: in small networks each further pass over a batch takes measurable time
        if (self.divisor, self.mean, self.std) == (1.0, (0.0,), (1.0,)):
            return stored.to(torch.float32)
        inputs = stored.to(torch.float32, copy=True)
        inputs.mul_(_per_channel([1 / (self.divisor * std) for std in self.std], inputs))
        if not any(self.mean):
            return inputs
        return inputs.sub_(_per_channel([mean / std for mean, std in zip(self.mean, self.std, strict=True)], inputs))


@dataclass(frozen=True)
class Standardised:
    """Encodes the features of a table: ``(stored - mean) / std``, in float64, as float32.

    Attributes:
        mean: one value per feature.
        std: one value per feature; infinite for a feature that becomes 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def over(cls, rows: np.ndarray) -> Standardised:
        """Encode features with mean 0 and standard deviation 1 over rows, float64 ``[n, features]``.

        Features that do not vary over these rows become 0.
        """
        largest = np.abs(rows).max(0)
        scale = np.where(largest > 0, largest, 1.0)  # so that no square overflows
        scaled = rows / scale
        varies = rows.max(0) > rows.min(0)  # the standard deviation of a constant may be above 0 by rounding
        std = np.where(varies, scaled.std(0) * scale, np.inf)
        return cls(tuple((scaled.mean(0) * scale).tolist()), tuple(std.tolist()))

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        """Encode a batch ``[..., features]`` of any numeric type as float32 of the same shape."""
        mean, std = (constants(values, torch.float64, stored.device) for values in (self.mean, self.std))
        return stored.to(torch.float64).sub(mean).div_(std).to(torch.float32)


def _per_channel(values: list[float], images: torch.Tensor) -> torch.Tensor | float:
    """One value per channel, in a shape that broadcasts to ``[..., channels, height, width]``, or the single value."""
    return values[0] if len(values) == 1 else constants(tuple(values), torch.float32, images.device).view(-1, 1, 1)


@dataclass(frozen=True)
class Symbols:
    """Encodes stored symbol numbers as the int64 indices of an embedding.

    Attributes:
        padding: the symbol that fills up shorter texts (:attr:`Spec.padding`): a batch is cut to its longest text;
            None: all texts have the same length.
    """

    padding: int | None = None

    def __call__(self, stored: torch.Tensor) -> torch.Tensor:
        """Encode a batch ``[..., length]`` of symbol numbers as int64 ``[..., longest]``, at least one symbol each."""
        if self.padding is not None:
            used = (stored != self.padding).flatten(0, -2).any(0).nonzero()
            stored = stored[..., : int(used[-1]) + 1 if len(used) else 1]
        return stored.to(torch.int64)


Encoding = Callable[["torch.Tensor"], "torch.Tensor"]
"""Turns a stored batch into network inputs: :class:`Scaled`, :class:`Standardised`, :class:`Symbols`."""


def is_ragged(encoding: Encoding) -> bool:
    """Whether batches of the same number of samples can have different shapes: each is cut to its longest text."""
    return isinstance(encoding, Symbols) and encoding.padding is not None


@dataclass(frozen=True)
class Users:
    """The users who produced the samples of a dataset.

    User ``u`` produced samples ``offsets[u]`` to ``offsets[u + 1]``; the users before number ``training`` are the
    publisher's training users, the others its test users (none if the publisher made no split).

    Attributes:
        names: one name per user.
        offsets: int64 ``[len(names) + 1]``, ascending, from 0 to the number of samples.
        training: number of training users, which come first.
        min_samples: a partition by user drops users with fewer samples after it has split the users.
        pooled_test: whether the last user stands for the whole test split, which a partition by user keeps.
    """

    names: tuple[str, ...]
    offsets: torch.Tensor
    training: int
    min_samples: int = 1
    pooled_test: bool = False


@dataclass(frozen=True)
class Dataset:
    """A dataset in memory or mapped from a cache file.

    The first ``train_size`` samples are the publisher's training split, the others its test split.

    Attributes:
        spec: shape and classes.
        encoding: turns a batch of ``inputs`` into network inputs.
        inputs: ``[n, *spec.input_shape]`` in a compact numeric type, uint8 for images and texts, floating-point for
            features; gathered and encoded batch by batch.
        targets: ``[n, ...]``, as the task's class describes them; of a classification int64 ``[n]``, in
            ``0 .. spec.classes - 1``.
        train_size: number of training samples.
        users: the users who produced the samples, or None.
        class_names: one name per class, for plots; of other tasks one per output.
        fingerprint: a hash of the data; recorded with every result.
        augmentation: how training images are changed at random, or None.
        overlap: the number of samples before a sample, and after it, with which it shares input: 79 for successive
            windows of 80 characters; 0 for separate samples. Clients' held-out samples keep this distance from training
            samples.
        note: what was inferred about the data, for the display; empty: nothing was.
    """

    spec: Spec
    encoding: Encoding
    inputs: torch.Tensor = field(repr=False)
    targets: torch.Tensor = field(repr=False)
    train_size: int
    users: Users | None = field(repr=False)
    class_names: tuple[str, ...]
    fingerprint: str
    augmentation: Augmentation | None = None
    overlap: int = 0
    note: str = ""


class DatasetConfig(ABC):
    """A dataset option of the configuration."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """Shape and classes. Only the users' own tables are read for it."""

    @abstractmethod
    def load(self) -> Dataset:
        """Read the data.

        Raises:
            InputError: the data are missing, damaged or not in the expected format.
        """


def require_dataset_config(dataset: object) -> None:
    """Reject data that a user gives as an object of another kind.

    Raises:
        InputError: naming its class.
    """
    if not isinstance(dataset, DatasetConfig):
        raise InputError(f"dataset: a {type(dataset).__name__}; allowed: a fedrun.InMemory, or another dataset option")
