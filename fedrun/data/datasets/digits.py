"""scikit-learn's digits: 1797 images of 8x8 pixels that come with the library, so nothing is downloaded."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Spec
from fedrun.data.datasets.in_memory import in_memory
from fedrun.system.errors import InputError


@config_class
class Digits(DatasetConfig):
    """Handwritten digits of 13 people, 16 grey levels (the test part of UCI's "Optical Recognition of Handwritten
    Digits").

    The library has no split. Here every fifth sample of each class, in the library's order, is a test sample: 1442
    training and 355 test samples, the same for every seed.
    """

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(1, 8, 8), classes=10)

    def load(self) -> Dataset:
        """The digits; inputs are uint8 ``[1797, 1, 8, 8]`` with values 0 (paper) to 16 (ink)."""
        rows = library_rows()
        images, labels = rows[:, :-1], rows[:, -1].astype(int)
        held_out = every_fifth_of_each_class(labels)
        inputs = images.astype(np.uint8).reshape(-1, 1, 8, 8)
        train, test = ((inputs[part], labels[part]) for part in (~held_out, held_out))
        return in_memory(self.spec, Scaled(divisor=16.0), tuple("0123456789"), train, test)


def library_rows() -> np.ndarray:
    """The 64 grey levels and the label of each digit, ``[1797, 65]``.

    They are read from scikit-learn's file: importing ``sklearn.datasets`` takes longer than a small run.

    Raises:
        InputError: scikit-learn is not installed.
    """
    library = find_spec("sklearn")
    if library is None or library.origin is None:
        raise InputError("dataset=digits: its images come with scikit-learn, which is not installed")
    with gzip.open(Path(library.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt", encoding="ascii") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.uint8)


def every_fifth_of_each_class(labels: np.ndarray) -> np.ndarray:
    """Bool ``[n]``: true for the 5th, 10th, ... sample of every class, in the order of ``labels`` ``[n]``."""
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[4::5]] = True
    return chosen
