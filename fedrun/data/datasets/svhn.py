"""SVHN: house numbers photographed in the street, in the MATLAB files that torchvision uses."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Spec
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.in_memory import Arrays, in_memory, require_labels
from fedrun.data.datasets.torchvision_files import TorchvisionFiles
from fedrun.system.errors import InputError

SIDE = 32


@config_class
class Svhn(TorchvisionFiles, ColourImages):
    """The cropped digits of SVHN, 73 257 + 26 032, 3x32x32, without the "extra" ones (Netzer et al., 2011).

    In the files the digit 0 has label 10; here it is class 0.

    Attributes:
        data_dir: folder in which ``SVHN`` holds the two files.
        download: see :class:`TorchvisionFiles`.
        mean: see :class:`ColourImages`.
        std: see :class:`ColourImages`.
        augmentation: see :class:`ColourImages`.
    """

    option: ClassVar[str] = "svhn"
    class_names: ClassVar[tuple[str, ...]] = tuple("0123456789")

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, SIDE, SIDE), classes=10)

    @property
    def folder(self) -> Path:
        return Path(self.data_dir).expanduser() / "SVHN"

    @property
    def files(self) -> tuple[str, ...]:
        return "train_32x32.mat", "test_32x32.mat"

    def load(self) -> Dataset:
        """Read the two files; inputs are uint8 ``[n, 3, 32, 32]``.

        Raises:
            InputError: a file is missing (and could not be downloaded), damaged or not what it should be.
        """
        self.require_files()
        train, test = (read_digits(self.path(file)) for file in self.files)
        return in_memory(self.spec, self.encoding, self.class_names, train, test, self.augmentation)


def read_digits(path: Path) -> Arrays:
    """Images uint8 ``[n, 3, 32, 32]`` and classes uint8 ``[n]`` of one file.

    Raises:
        InputError: the file cannot be read or does not hold such images and labels 1 to 10.
    """
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
    except Exception as error:  # a damaged file can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} cannot be read as a MATLAB file: {reason}") from error
    images, labels = content.get("X"), content.get("y")
    if images is None or images.dtype != np.uint8 or images.shape[:-1] != (SIDE, SIDE, 3):
        raise InputError(f"{path}: X must be an array of bytes of shape {SIDE} x {SIDE} x 3 x samples")
    samples = images.shape[-1]
    if labels is None or labels.dtype.kind not in "iu" or labels.shape != (samples, 1):
        raise InputError(f"{path}: y must be an array of integers of shape {samples} x 1, one for each image of X")
    if not samples:
        raise InputError(f"{path} has no images")
    digits = labels[:, 0].astype(np.int64)
    require_labels(digits, range(1, 11), path)
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), (digits % 10).astype(np.uint8)
