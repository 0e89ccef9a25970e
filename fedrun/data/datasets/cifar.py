"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in the "python version" that torchvision reads."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Spec
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.in_memory import in_memory
from fedrun.data.datasets.torchvision_files import TorchvisionFiles
from fedrun.system.user_path import user_path


@config_class
class Cifar(TorchvisionFiles, ColourImages):
    """Base class of CIFAR-10 and CIFAR-100: pickled batches of 3x32x32 images.

    torchvision compares a file with its published checksum before it unpickles it, so no other code is run.

    Attributes (besides those of :class:`TorchvisionFiles` and :class:`ColourImages`):
        data_dir: folder in which the published archive has been unpacked.
    """

    classes: ClassVar[int]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, 32, 32), classes=self.classes)

    @property
    def folder(self) -> Path:
        return user_path(self.data_dir, "dataset.data_dir") / str(self.torchvision_dataset().base_folder)

    @property
    def files(self) -> tuple[str, ...]:
        theirs = self.torchvision_dataset()
        return (*(file for file, _ in theirs.train_list + theirs.test_list), theirs.meta["filename"])

    def load(self) -> Dataset:
        """Read the batches; inputs are uint8 ``[n, 3, 32, 32]``.

        Raises:
            InputError: a file is missing (and could not be downloaded) or is not the published one.
        """
        self.require_files()
        train, test = (self.read(self.folder.parent, train=train) for train in (True, False))
        arrays, test_arrays = ((s.data.transpose(0, 3, 1, 2), np.array(s.targets)) for s in (train, test))
        return in_memory(self.spec, self.encoding, tuple(train.classes), arrays, test_arrays, self.augmentation)


@config_class
class Cifar10(Cifar):
    """CIFAR-10: 50 000 + 10 000 photographs of 10 kinds of things, 3x32x32."""

    option: ClassVar[str] = "cifar10"
    torchvision_class: ClassVar[str] = "CIFAR10"
    classes: ClassVar[int] = 10


@config_class
class Cifar100(Cifar):
    """CIFAR-100: 50 000 + 10 000 photographs of 100 kinds of things (the fine labels), 3x32x32."""

    option: ClassVar[str] = "cifar100"
    torchvision_class: ClassVar[str] = "CIFAR100"
    classes: ClassVar[int] = 100
