"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in the "python version" that torchvision uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Spec
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.in_memory import Arrays, in_memory, require_labels
from fedrun.data.datasets.safe_pickle import read_pickle
from fedrun.data.datasets.torchvision_files import TorchvisionFiles
from fedrun.system.errors import InputError

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32


@config_class
class Cifar(TorchvisionFiles, ColourImages):
    """Base class of CIFAR-10 and CIFAR-100: pickled batches of 3x32x32 images. No code in a pickle is run.

    Attributes:
        data_dir: folder in which the published archive has been unpacked.
        download: see :class:`TorchvisionFiles`.
        mean: see :class:`ColourImages`.
        std: see :class:`ColourImages`.
        augmentation: see :class:`ColourImages`.
    """

    classes: ClassVar[int]
    unpacked: ClassVar[str]
    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[tuple[str, ...]]
    names_file: ClassVar[str]
    names_key: ClassVar[str]
    labels_key: ClassVar[str]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=SHAPE, classes=self.classes)

    @property
    def folder(self) -> Path:
        return Path(self.data_dir).expanduser() / self.unpacked

    @property
    def files(self) -> tuple[str, ...]:
        return self.every_file()

    @classmethod
    def every_file(cls) -> tuple[str, ...]:
        """The names of the files that are read."""
        return (*cls.train_files, *cls.test_files, cls.names_file)

    def load(self) -> Dataset:
        """Read the batches; inputs are uint8 ``[n, 3, 32, 32]``.

        Raises:
            InputError: a file is missing (and could not be downloaded), damaged or not what it should be.
        """
        self.require_files()
        names = self._dictionary(self.names_file).get(self.names_key)
        if (
            not isinstance(names, list)
            or len(names) != self.classes
            or not all(isinstance(name, str) for name in names)
        ):
            raise InputError(f"{self.folder / self.names_file}: {self.names_key} must be {self.classes} names")
        train, test = self._split(self.train_files), self._split(self.test_files)
        return in_memory(self.spec, self.encoding, tuple(names), train, test, self.augmentation)

    def _split(self, files: tuple[str, ...]) -> Arrays:
        batches = [self._batch(file) for file in files]
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    def _batch(self, file: str) -> Arrays:
        """Images uint8 ``[n, 3, 32, 32]`` and labels int64 ``[n]`` of one file."""
        path = self.folder / file
        content = self._dictionary(file)
        images, labels = content.get("data"), content.get(self.labels_key)
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (PIXELS,):
            raise InputError(f"{path}: data must be an array of bytes with {PIXELS} columns")
        if not len(images):
            raise InputError(f"{path} has no images")
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise InputError(f"{path}: {self.labels_key} must be a list of integers")
        if len(labels) != len(images):
            raise InputError(f"{path} has {len(labels)} labels for {len(images)} images")
        require_labels(numbers := np.array(labels), range(self.classes), path)
        return images.reshape(-1, *SHAPE), numbers

    def _dictionary(self, file: str) -> dict[Any, Any]:
        content = read_pickle(self.path(file))
        if not isinstance(content, dict):
            raise InputError(f"{self.folder / file} is a pickled {type(content).__name__} instead of a dictionary")
        return content


@config_class
class Cifar10(Cifar):
    """CIFAR-10: 50 000 + 10 000 photographs of 10 kinds of things, 3x32x32."""

    option: ClassVar[str] = "cifar10"
    classes: ClassVar[int] = 10
    unpacked: ClassVar[str] = "cifar-10-batches-py"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{number}" for number in range(1, 6))
    test_files: ClassVar[tuple[str, ...]] = ("test_batch",)
    names_file: ClassVar[str] = "batches.meta"
    names_key: ClassVar[str] = "label_names"
    labels_key: ClassVar[str] = "labels"


@config_class
class Cifar100(Cifar):
    """CIFAR-100: 50 000 + 10 000 photographs of 100 kinds of things (the fine labels), 3x32x32."""

    option: ClassVar[str] = "cifar100"
    classes: ClassVar[int] = 100
    unpacked: ClassVar[str] = "cifar-100-python"
    train_files: ClassVar[tuple[str, ...]] = ("train",)
    test_files: ClassVar[tuple[str, ...]] = ("test",)
    names_file: ClassVar[str] = "meta"
    names_key: ClassVar[str] = "fine_label_names"
    labels_key: ClassVar[str] = "fine_labels"
