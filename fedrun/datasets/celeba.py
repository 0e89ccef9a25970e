"""CelebA: is the face smiling, by celebrity (LEAF)."""

from __future__ import annotations

import reprlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Encoding, Scaled, Spec
from fedrun.datasets.leaf import Decoder, LeafDataset, LeafJson, Source, integer_labels
from fedrun.datasets.pictures import embedded_picture, picture
from fedrun.datasets.user_tables import ParquetTable
from fedrun.errors import InputError
from fedrun.recipe import STRICT

SIDE = 84
IMAGES = "img_align_celeba"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Celeba(LeafDataset):
    """LEAF's CelebA: 9343 celebrities, 200 288 photographs, 2 classes.

    The aligned photographs of 178x218 pixels are squeezed to 84x84 (bicubic), as in LEAF and TurboSVM-FL, and stored
    as uint8 RGB.

    Attributes:
        data_dir: see :class:`LeafDataset`; LEAF's JSON in ``<data_dir>/celeba`` has names of the photographs, which are
            in ``<data_dir>/celeba/img_align_celeba``. Parquet files (image, celeb_id, Smiling) have them inside.
        cache_dir: see :class:`LeafDataset`.
        min_samples: see :class:`LeafDataset`.
    """

    name: ClassVar[str] = "celeba"
    class_names: ClassVar[tuple[str, ...]] = ("not smiling", "smiling")

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, SIDE, SIDE), classes=len(self.class_names))

    @property
    def encoding(self) -> Encoding:
        return Scaled(divisor=255.0)

    def decoder(self) -> Decoder:
        return Photographs(self.folder / IMAGES)

    def sources(self) -> tuple[Source, ...]:
        table = ParquetTable(self.decoder(), user="celeb_id", x="image", y="Smiling", class_names=self.class_names)
        return (LeafJson(self.decoder()), table)


class Photographs:
    """Decodes names of files in a folder, or pictures as Parquet files of the hub have them, to ``[n, 3, 84, 84]``."""

    how = f"bicubic {SIDE}"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        targets = integer_labels(y, 2)
        with ThreadPoolExecutor() as threads:  # decoding leaves Python's lock to others
            return np.stack(list(threads.map(self._photograph, x))), targets

    def remarks(self) -> tuple[str, ...]:
        return ()

    def _photograph(self, item: Any) -> np.ndarray:
        """uint8 ``[3, 84, 84]``."""
        if isinstance(item, dict):
            return embedded_picture(item, "RGB", SIDE, squeeze=True)
        if not isinstance(item, str) or not item or Path(item).name != item:
            raise InputError(f"{reprlib.repr(item)} is not the name of a photograph")
        try:
            return picture(self._folder / item, "RGB", SIDE, squeeze=True)
        except InputError as error:
            raise InputError(f"photograph {self._folder / item} {error}") from error
