"""CelebA: is the face smiling, by celebrity (LEAF), from LEAF's JSON, Parquet files or CelebA's own lists."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Encoding, Scaled, Spec
from fedrun.data.datasets.image_decoding import decode_embedded_image, decode_image
from fedrun.data.datasets.leaf import SPLITS, Decoder, FileFormat, LeafDataset, LeafJson, integer_labels
from fedrun.data.datasets.regular_file import read_lines
from fedrun.data.datasets.user_tables import ParquetTable
from fedrun.data.download.catalogue import ATTRIBUTES, IDENTITIES, IMAGES, UNSPLIT
from fedrun.system.errors import InputError

SIDE = 84
LEAST = 5
"""LEAF drops celebrities with fewer photographs."""


@config_class
class Celeba(LeafDataset):
    """LEAF's CelebA: 9343 celebrities, 200 288 photographs, 2 classes.

    The aligned photographs of 178x218 pixels are resized to 84x84 (bicubic), as in LEAF and TurboSVM-FL, and stored
    as uint8 RGB.

    Attributes (besides those of :class:`LeafDataset`):
        data_dir: LEAF's JSON in ``<data_dir>/celeba`` has names of the photographs, which are in
            ``<data_dir>/celeba/img_align_celeba``. Parquet files (image, celeb_id, Smiling) contain them. Without
            either, CelebA's own ``identity_CelebA.txt`` and ``list_attr_celeba.txt`` next to that folder are read; then
            all celebrities are training users.
    """

    name: ClassVar[str] = "celeba"
    class_names: ClassVar[tuple[str, ...]] = ("not smiling", "smiling")

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, SIDE, SIDE), classes=len(self.class_names))

    @property
    def encoding(self) -> Encoding:
        return Scaled(divisor=255.0)

    def sources(self) -> tuple[FileFormat, ...]:
        decoder = Photographs(self.folder / IMAGES)
        table = ParquetTable(decoder, user="celeb_id", x="image", y="Smiling", class_names=self.class_names)
        return (LeafJson(decoder), table)

    def _source(self) -> tuple[FileFormat, dict[str, list[Path]]]:
        if (self.folder / IDENTITIES).exists() and not any(
            (self.folder / name).is_dir() for name in (*SPLITS, UNSPLIT)
        ):
            lists = [self.folder / IDENTITIES, self.folder / ATTRIBUTES]
            return CelebaLists(Photographs(self.folder / IMAGES)), {"train": lists}
        return super()._source()

    def _remedy(self) -> str:
        return f"{super()._remedy()}, or put CelebA's own {IDENTITIES}, {ATTRIBUTES} and {IMAGES} there"


class CelebaLists(FileFormat):
    """CelebA's own text files: the celebrity on each photograph, and its attributes, 1 or -1.

    ``identity_CelebA.txt`` has a photograph and a number of a celebrity in each line; ``list_attr_celeba.txt`` has the
    number of photographs, the names of the attributes, and then a photograph and its attributes in each line.
    """

    suffix: ClassVar[str] = ".txt"

    def sizes(self, paths: list[Path]) -> dict[str, int]:
        return {name: len(labels) for name, labels in self._celebrities(paths[0].parent).items()}

    def pieces(self, path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
        if path.name != IDENTITIES:  # the attributes are read with the identities
            return
        for name, labels in self._celebrities(path.parent).items():
            yield name, list(labels), list(labels.values())

    def described(self, name: str) -> str:
        return f"celebrity {name}"

    def _celebrities(self, folder: Path) -> dict[str, dict[str, int]]:
        """Every celebrity's photographs, each with 1 for smiling or 0."""
        identities, attributes = folder / IDENTITIES, folder / ATTRIBUTES
        smiling = self._smiling(attributes)
        celebrities: dict[str, dict[str, int]] = {}
        for number, line in enumerate(read_lines(identities), start=1):
            match line.split():
                case [photograph, celebrity] if photograph in smiling:
                    celebrities.setdefault(celebrity, {})[photograph] = smiling.pop(photograph)
                case [photograph, _]:
                    raise InputError(
                        f"{identities}: line {number}: {photograph} is not in {attributes}, or is listed twice"
                    )
                case _:
                    raise InputError(f"{identities}: line {number} must be a photograph and a celebrity's number")
        kept = {name: labels for name, labels in celebrities.items() if len(labels) >= LEAST}
        if not kept:
            raise InputError(f"{identities} has no celebrity with {LEAST} photographs or more")
        return kept

    def _smiling(self, path: Path) -> dict[str, int]:
        """1 for every photograph with a smiling face, otherwise 0."""
        lines = read_lines(path)
        attributes = lines[1].split() if len(lines) > 1 else []
        if "Smiling" not in attributes:
            raise InputError(f"{path}: line 2 must name the attributes, Smiling among them")
        column, smiling = 1 + attributes.index("Smiling"), dict[str, int]()
        for number, line in enumerate(lines[2:], start=3):
            values = line.split()
            if len(values) != 1 + len(attributes) or values[column] not in ("1", "-1"):
                raise InputError(
                    f"{path}: line {number} must be a photograph and {len(attributes)} attributes, each 1 or -1"
                )
            smiling[values[0]] = int(values[column] == "1")
        return smiling


class Photographs(Decoder):
    """Decodes images, given by file name in a folder or as the hub's Parquet files have them, to ``[n, 3, 84, 84]``."""

    cache_tag = f"bicubic {SIDE}"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        targets = integer_labels(y, 2)
        with ThreadPoolExecutor() as threads:  # decoding releases Python's lock
            return np.stack(list(threads.map(self._photograph, x))), targets

    def _photograph(self, item: Any) -> np.ndarray:
        """uint8 ``[3, 84, 84]``."""
        if isinstance(item, dict):
            return decode_embedded_image(item, "RGB", SIDE, resize="bicubic")
        if not isinstance(item, str) or not item or Path(item).name != item:
            raise InputError(f"{reprlib.repr(item)} is not the name of a photograph")
        try:
            return decode_image(self._folder / item, "RGB", SIDE, resize="bicubic")
        except InputError as error:
            raise InputError(f"photograph {self._folder / item} {error}") from error
