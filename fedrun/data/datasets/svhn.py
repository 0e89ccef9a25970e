"""SVHN: house numbers photographed in the street, in the MATLAB files that torchvision reads."""

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
class Svhn(TorchvisionFiles, ColourImages):
    """The cropped digits of SVHN, 73 257 + 26 032, 3x32x32, without the "extra" ones (Netzer et al., 2011).

    In the files the digit 0 has label 10; here it is class 0.

    Attributes (besides those of :class:`TorchvisionFiles` and :class:`ColourImages`):
        data_dir: folder in which ``SVHN`` holds the two files.
    """

    option: ClassVar[str] = "svhn"
    torchvision_class: ClassVar[str] = "SVHN"
    class_names: ClassVar[tuple[str, ...]] = tuple("0123456789")

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, 32, 32), classes=10)

    @property
    def folder(self) -> Path:
        return user_path(self.data_dir, "dataset.data_dir") / "SVHN"

    @property
    def files(self) -> tuple[str, ...]:
        listed = self.torchvision_dataset().split_list
        return tuple(listed[split][1] for split in ("train", "test"))

    def load(self) -> Dataset:
        """Read the two files; inputs are uint8 ``[n, 3, 32, 32]``.

        Raises:
            InputError: a file is missing (and could not be downloaded) or is not the published one.
        """
        self.require_files()
        splits = (self.read(self.folder, split=split) for split in ("train", "test"))
        train, test = ((np.ascontiguousarray(split.data), split.labels) for split in splits)
        return in_memory(self.spec, self.encoding, self.class_names, train, test, self.augmentation)
