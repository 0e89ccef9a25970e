"""MNIST and Fashion-MNIST, in the files and folders that torchvision uses."""

from __future__ import annotations

import http.client
import logging
import os
import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset, DatasetRecipe, Scaled, Spec
from fedrun.datasets.fingerprint import fingerprint
from fedrun.datasets.idx import find_idx, read_idx
from fedrun.errors import InputError
from fedrun.recipe import STRICT

if TYPE_CHECKING:
    import torchvision

logger = logging.getLogger(__name__)

CLASSES = 10
SIDE = 28
FILES = tuple(f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


@dataclass(frozen=True, kw_only=True, config=STRICT)
class IdxImages(DatasetRecipe):
    """What MNIST and Fashion-MNIST share: four IDX files of 28x28 grey images and labels 0 to 9.

    Attributes:
        data_dir: folder in which ``<name>/raw`` holds the four files, each as published (``.gz``) or unpacked. They are
            read into memory and never unpacked in place, so the folder can be read-only.
        download: fetch missing files with torchvision's downloader.
        mean: subtracted from grey/255; 0 leaves it as it is.
        std: divides the result; 1 leaves it as it is.
    """

    data_dir: str
    download: bool
    mean: Annotated[float, Ge(0), Le(1)]
    std: Annotated[float, Gt(0), Le(1)]

    name: ClassVar[str]
    class_names: ClassVar[tuple[str, ...]]

    @staticmethod
    @abstractmethod
    def downloader() -> type[torchvision.datasets.MNIST]:
        """torchvision's class for the same data."""

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(1, SIDE, SIDE), classes=CLASSES)

    @property
    def folder(self) -> Path:
        """Where the four files are."""
        return Path(self.data_dir).expanduser() / self.name / "raw"

    def load(self) -> Dataset:
        """Read the four files; inputs are uint8 ``[n, 1, 28, 28]``.

        Raises:
            InputError: a file is missing (and could not be downloaded) or damaged.
        """
        if self.download and self._missing():
            self._fetch()
        if missing := self._missing():
            raise InputError(f"{self.folder} lacks {', '.join(missing)} (or .gz): {self._remedy()}")
        train_images, train_labels = self._split("train")
        test_images, test_labels = self._split("t10k")
        inputs = np.concatenate([train_images, test_images])[:, None]
        targets = np.concatenate([train_labels, test_labels]).astype(np.int64)
        return Dataset(
            spec=self.spec,
            encoding=Scaled(divisor=255.0, mean=(self.mean,), std=(self.std,)),
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            train_size=len(train_images),
            users=None,
            class_names=self.class_names,
            fingerprint=fingerprint([len(train_images), inputs, targets]),
        )

    def _missing(self) -> list[str]:
        return [name for name in FILES if find_idx(self.folder, name) is None]

    def _remedy(self) -> str:
        downloader = self.downloader()
        command = f"from torchvision.datasets import {self.name}; {self.name}({self.data_dir!r}, download=True)"
        addresses = " or ".join(downloader.mirrors)
        return (
            f'set dataset.download=true, or run `python -c "{command}"`, or copy the .gz files there from {addresses}'
        )

    def _fetch(self) -> None:
        """Download the four ``.gz`` files, aside first: what is in the folder is complete, also for a parallel run."""
        downloader = self.downloader()
        logger.info("downloading %s to %s", self.name, self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="download-", dir=self.folder) as aside:
                raw = Path(downloader(aside, download=True).raw_folder)
                for name in FILES:
                    os.replace(raw / f"{name}.gz", self.folder / f"{name}.gz")
        except (RuntimeError, OSError, EOFError, http.client.HTTPException) as error:
            reason = " ".join(str(error).split())
            addresses = " or ".join(downloader.mirrors)
            raise InputError(
                f"{self.name} could not be downloaded to {self.folder} ({reason}): "
                f"copy {', '.join(f'{name}.gz' for name in self._missing())} there from {addresses}"
            ) from error

    def _split(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Images uint8 ``[n, 28, 28]`` and labels uint8 ``[n]`` of one split."""
        images_path = self._path(f"{split}-images-idx3-ubyte")
        labels_path = self._path(f"{split}-labels-idx1-ubyte")
        images, labels = read_idx(images_path, dimensions=3), read_idx(labels_path, dimensions=1)
        if images.shape[1:] != (SIDE, SIDE):
            raise InputError(f"{images_path} has images of {images.shape[1]}x{images.shape[2]} pixels instead of 28x28")
        if not len(images):
            raise InputError(f"{images_path} has no images")
        if len(images) != len(labels):
            raise InputError(f"{labels_path} has {len(labels)} labels for {len(images)} images")
        if labels.max() >= CLASSES:
            first = int(np.argmax(labels >= CLASSES))
            raise InputError(f"{labels_path}: label {first} is {labels[first]}; labels are 0 to 9")
        return images, labels

    def _path(self, name: str) -> Path:
        path = find_idx(self.folder, name)
        if path is None:
            raise InputError(f"{self.folder / name} has vanished")
        return path


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Mnist(IdxImages):
    """MNIST: handwritten digits, 60 000 to train and 10 000 to test (LeCun, Cortes, Burges)."""

    name: ClassVar[str] = "MNIST"
    class_names: ClassVar[tuple[str, ...]] = tuple("0123456789")

    @staticmethod
    def downloader() -> type[torchvision.datasets.MNIST]:
        import torchvision

        found: type[torchvision.datasets.MNIST] = torchvision.datasets.MNIST
        return found


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FashionMnist(IdxImages):
    """Fashion-MNIST: clothes in MNIST's format, 60 000 to train and 10 000 to test (Xiao, Rasul, Vollgraf 2017)."""

    name: ClassVar[str] = "FashionMNIST"
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

    @staticmethod
    def downloader() -> type[torchvision.datasets.MNIST]:
        import torchvision

        found: type[torchvision.datasets.MNIST] = torchvision.datasets.FashionMNIST
        return found
