"""FEMNIST: handwritten digits and letters by writer (LEAF)."""

from __future__ import annotations

import string
from typing import Any, ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Encoding, Scaled, Spec
from fedrun.data.datasets.image_decoding import decode_embedded_image
from fedrun.data.datasets.leaf import Decoder, FileFormat, LeafDataset, LeafJson, integer_labels
from fedrun.data.datasets.user_tables import ParquetTable
from fedrun.system.errors import InputError

SIDE = 28
PIXELS = SIDE * SIDE
CLASS_NAMES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
NOTICED_ROUNDING = 1e-3
"""Rounding, in the range 0 to 1, beyond which a remark is made. Grey levels written with three digits are below it."""


@config_class
class Femnist(LeafDataset):
    """LEAF's FEMNIST: 3550 writers, 805 263 images of 28x28 grey pixels, 62 classes (0-9, A-Z, a-z).

    As in LEAF, paper is 1 and ink is 0. LEAF's pixels are grey/255, so they are stored exactly as uint8.

    Attributes (besides those of :class:`LeafDataset`):
        data_dir: the files are in ``<data_dir>/femnist``.
    """

    name: ClassVar[str] = "femnist"
    class_names: ClassVar[tuple[str, ...]] = CLASS_NAMES

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(1, SIDE, SIDE), classes=len(CLASS_NAMES))

    @property
    def encoding(self) -> Encoding:
        return Scaled(divisor=255.0)

    def sources(self) -> tuple[FileFormat, ...]:
        """LEAF's JSON, or Parquet files with the columns of the hub's flwrlabs/femnist."""
        table = ParquetTable(GreyPictures(), user="writer_id", x="image", y="character", class_names=CLASS_NAMES)
        return (LeafJson(GreyImages()), table)


class GreyImages(Decoder):
    """Decodes lists of 784 numbers from 0 to 1, row by row, to uint8 ``[n, 1, 28, 28]``: ``round(255 x)``."""

    cache_tag = "grey"

    def __init__(self) -> None:
        self._worst_rounding = 0.0

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        targets = integer_labels(y, len(CLASS_NAMES))
        pixels = _numbers(x)
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            image, pixel = np.argwhere(~((pixels >= 0) & (pixels <= 1)))[0]
            raise InputError(f"pixel {pixel} of image {image} is {pixels[image, pixel]}; pixels are from 0 to 1")
        grey = pixels * 255.0
        stored = np.rint(grey)
        self._worst_rounding = max(self._worst_rounding, float(np.abs(grey - stored).max()) / 255.0)
        return stored.astype(np.uint8).reshape(-1, 1, SIDE, SIDE), targets

    def remark(self) -> str:
        if self._worst_rounding <= NOTICED_ROUNDING:
            return ""
        return f"pixels were rounded to the nearest of 256 grey levels, by up to {self._worst_rounding:.4f}"


class GreyPictures(Decoder):
    """Decodes image files of 28x28 pixels to uint8 ``[n, 1, 28, 28]``."""

    cache_tag = "grey"

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        targets = integer_labels(y, len(CLASS_NAMES))
        return np.stack([decode_embedded_image(item, "L", SIDE, resize=None) for item in x]), targets


def _numbers(x: list[Any]) -> np.ndarray:
    """float64 ``[n, 784]``."""
    try:
        pixels = np.array(x)  # without a dtype, so that texts are not converted to numbers
    except ValueError:  # rows of different lengths
        pixels = np.empty(0)
    if pixels.shape == (len(x), PIXELS) and pixels.dtype.kind in "fiu":
        return pixels.astype(np.float64, copy=False)
    for image, row in enumerate(x):
        if not isinstance(row, list) or len(row) != PIXELS:
            size = f"{len(row)} pixels" if isinstance(row, list) else "no list of pixels"
            raise InputError(f"image {image} has {size}; an image has {PIXELS}")
    raise InputError("a pixel is not a number; pixels are numbers from 0 to 1")
