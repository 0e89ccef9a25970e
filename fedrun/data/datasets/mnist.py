"""MNIST, Fashion-MNIST and EMNIST, in the files and folders that torchvision uses."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.data.datasets.idx import read_idx
from fedrun.data.datasets.in_memory import in_memory, require_labels
from fedrun.data.datasets.torchvision_files import TorchvisionFiles
from fedrun.system.errors import InputError
from fedrun.system.user_path import user_path

SIDE = 28


@config_class
class IdxImages(TorchvisionFiles):
    """Base class of datasets of four IDX files with 28x28 grey images and their labels.

    Attributes (besides those of :class:`TorchvisionFiles`):
        data_dir: folder in which ``<name>/raw`` holds the four files, each as published (``.gz``) or unpacked. They are
            read into memory.
        mean: subtracted from grey/255; 0 changes nothing; None: the mean of all training pixels.
        std: divides the difference; 1 changes nothing; None: the standard deviation of all training pixels.
    """

    mean: Annotated[float, Ge(0), Le(1)] | None
    std: Annotated[float, Gt(0), Le(1)] | None

    name: ClassVar[str]
    class_names: ClassVar[tuple[str, ...]]

    @property
    def splits(self) -> tuple[str, str]:
        """Prefixes of the names of the training and the test files."""
        return "train", "t10k"

    @property
    def labels(self) -> tuple[str, ...]:
        """One name per class."""
        return self.class_names

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(1, SIDE, SIDE), classes=len(self.labels))

    @property
    def folder(self) -> Path:
        return user_path(self.data_dir, "dataset.data_dir") / self.name / "raw"

    @property
    def files(self) -> tuple[str, ...]:
        kinds = ("images-idx3", "labels-idx1")
        return tuple(f"{split}-{kind}-ubyte[.gz]" for split in self.splits for kind in kinds)

    def find(self, file: str) -> Path | None:
        path = self.folder / file.removesuffix("[.gz]")
        return next((form for form in (path, path.with_name(f"{path.name}.gz")) if form.is_file()), None)

    def load(self) -> Dataset:
        """Read the four files; inputs are uint8 ``[n, 1, 28, 28]``.

        Raises:
            InputError: a file is missing (and could not be downloaded) or damaged.
        """
        spec = self.spec
        train_images, train_labels, test_images, test_labels = self.require_files()
        train, test = self._split(train_images, train_labels), self._split(test_images, test_labels)
        mean, std = moments(train[0]) if None in (self.mean, self.std) else (0.0, 1.0)
        encoding = Scaled(
            divisor=255.0,
            mean=(mean if self.mean is None else self.mean,),
            std=(std if self.std is None else self.std,),
        )
        return in_memory(spec, encoding, self.labels, train, test)

    def decoded(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upright images and classes from 0, from the files' images ``[n, 28, 28]`` and labels ``[n]``."""
        return images, labels

    @property
    def published_labels(self) -> range:
        """The labels in the files."""
        return range(len(self.class_names))

    def _split(self, images_path: Path, labels_path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 ``[n, 1, 28, 28]`` and classes uint8 ``[n]`` of one split."""
        images, labels = read_idx(images_path, (SIDE, SIDE)), read_idx(labels_path, ())
        if not len(images):
            raise InputError(f"{images_path} has no images")
        if len(images) != len(labels):
            raise InputError(f"{labels_path} has {len(labels)} labels for {len(images)} images")
        require_labels(labels, self.published_labels, labels_path)
        images, labels = self.decoded(images, labels)
        return images[:, None], labels


def moments(images: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of all pixels of uint8 images, divided by 255 (exact up to the last rounding)."""
    counts = np.bincount(images.reshape(-1), minlength=256)
    greys = np.arange(256) / 255
    mean = float(counts @ greys / counts.sum())
    return mean, float(np.sqrt(counts @ (greys - mean) ** 2 / counts.sum()))


@config_class
class Mnist(IdxImages):
    """MNIST: handwritten digits, 60 000 to train and 10 000 to test (LeCun, Cortes, Burges)."""

    name: ClassVar[str] = "MNIST"
    option: ClassVar[str] = "mnist"
    class_names: ClassVar[tuple[str, ...]] = tuple("0123456789")


@config_class
class FashionMnist(IdxImages):
    """Fashion-MNIST: clothes in MNIST's format, 60 000 to train and 10 000 to test (Xiao, Rasul, Vollgraf 2017)."""

    name: ClassVar[str] = "FashionMNIST"
    option: ClassVar[str] = "fmnist"
    class_names: ClassVar[tuple[str, ...]] = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )


Split = Literal["byclass", "balanced", "letters", "digits"]
EMNIST_CLASSES: dict[str, str] = {
    "byclass": string.digits + string.ascii_uppercase + string.ascii_lowercase,
    "balanced": string.digits + string.ascii_uppercase + "abdefghnqrt",
    "letters": string.ascii_lowercase,
    "digits": string.digits,
}
"""The characters of each split, by class. Where upper and lower case look alike, they share a class."""


@config_class
class Emnist(IdxImages):
    """EMNIST: handwritten characters made from NIST's forms as MNIST was (Cohen, Afshar, Tapson, van Schaik, 2017).

    Training and test samples, classes: ``byclass`` 697 932 + 116 323, 62; ``balanced`` 112 800 + 18 800, 47;
    ``letters`` 124 800 + 20 800, 26; ``digits`` 240 000 + 40 000, 10. In the files images are transposed and
    letters numbered from 1; here images are upright and classes are numbered from 0.

    Attributes (besides those of :class:`IdxImages`):
        data_dir: the files are in ``<data_dir>/EMNIST/raw``.
        split: which of the publisher's selections.
        first_classes: number of classes whose samples are used, from class 0 on; None: all. FedDC's and FedUmf's
            "EMNIST-L" has the first 10 of ``letters``: 48 000 + 8 000 samples.
    """

    split: Split
    first_classes: Annotated[int, Ge(2)] | None

    name: ClassVar[str] = "EMNIST"
    option: ClassVar[str] = "emnist"

    @property
    def splits(self) -> tuple[str, str]:
        return f"emnist-{self.split}-train", f"emnist-{self.split}-test"

    @property
    def labels(self) -> tuple[str, ...]:
        characters = EMNIST_CLASSES[self.split]
        if self.first_classes is not None and self.first_classes > len(characters):
            raise InputError(
                f"dataset.first_classes={self.first_classes}: dataset.split={self.split} has {len(characters)} classes"
            )
        return tuple(characters[: self.first_classes])

    @property
    def published_labels(self) -> range:
        count = len(EMNIST_CLASSES[self.split])
        return range(1, count + 1) if self.split == "letters" else range(count)

    def decoded(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        classes = labels - np.uint8(self.published_labels[0])
        upright = images.transpose(0, 2, 1)
        if self.first_classes is None:
            return upright, classes
        kept = classes < self.first_classes
        if not kept.any():
            raise InputError(f"dataset.first_classes={self.first_classes} leaves no sample of {self.folder}")
        return upright[kept], classes[kept]
