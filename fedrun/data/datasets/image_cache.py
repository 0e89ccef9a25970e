"""Folders of image files, decoded once into a cache that later runs map into memory.

The cache is :mod:`fedrun.data.datasets.cache`.
"""

from __future__ import annotations

import logging
import math
import operator
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from fedrun.data.datasets.base import Dataset
from fedrun.data.datasets.cache import Index, cache_key, create, open_cache, write_cache
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.image_decoding import decode_image
from fedrun.system.errors import InputError

log = logging.getLogger(__name__)

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Names of image files end in one of these, in capitals or not."""

PIECE = 1024
"""Largest number of images of a class that are decoded before they are written; a larger one would not be faster."""

PIECE_BYTES = 2**28
"""Largest size of these images when they are decoded."""


@dataclass(frozen=True)
class ClassFiles:
    """The images of one class in one split.

    Attributes:
        name: such as ``train/cat``, for the cache's index.
        label: number of the class, 0 to 255.
        files: at least one image.
    """

    name: str
    label: int
    files: tuple[Path, ...]


def class_folders(folder: Path) -> dict[str, Path]:
    """The subfolders of a folder by name, sorted, without hidden ones.

    Raises:
        InputError: the folder cannot be read or has none.
    """
    folders = {path.name: path for path in visible(folder) if path.is_dir()}
    if not folders:
        raise InputError(f"{folder} has no folders; it needs one folder of images per class")
    return folders


def images_in(folder: Path) -> tuple[Path, ...]:
    """The image files in a folder, sorted by name, without hidden ones.

    Other files are skipped, with a warning in the log.

    Raises:
        InputError: the folder cannot be read or has no image.
    """
    entries = visible(folder)
    images = tuple(path for path in entries if path.suffix.lower() in SUFFIXES)
    if not images:
        raise InputError(f"{folder} has no images; their names end in {', '.join(sorted(SUFFIXES))}")
    if others := len(entries) - len(images):
        log.warning("%s: %d entries are skipped: their names are not those of images", folder, others)
    return images


def split_files(files: Sequence[Path], test_share: float) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Training and test files: with the share f the n-th file (from 0) is a test file if ⌊(n + 1) f⌋ > ⌊n f⌋."""
    test = [math.floor((n + 1) * test_share) > math.floor(n * test_share) for n in range(len(files))]
    return tuple(compress(files, map(operator.not_, test))), tuple(compress(files, test))


def visible(folder: Path) -> list[Path]:
    """The entries of a folder, sorted by name, without hidden ones.

    Raises:
        InputError: the folder cannot be read, or a name in it is not text in UTF-8.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from error
    for name in names:
        if not name.isprintable():  # undecodable bytes could be neither shown nor recorded
            raise InputError(f"{folder} has an entry named {name!a}; names must be printable text in UTF-8")
    return [folder / name for name in names]


def cached_images(
    config: ColourImages,
    class_names: tuple[str, ...],
    train: Sequence[ClassFiles],
    test: Sequence[ClassFiles],
    source: Path,
    place: Path,
) -> Dataset:
    """The dataset of two splits of images without users: training first, class by class in the given order.

    Args:
        config: its spec has the size to which images are resized.
        class_names: names of the classes.
        train: the images of each training class.
        test: the images of each test class.
        source: the folder that the files are in; the cache depends on the files' paths below it.
        place: folder of the caches.

    Raises:
        InputError: an image cannot be decoded, or the cache is damaged or cannot be written.
    """
    spec = config.spec
    size = spec.input_shape[-1]
    groups = [*train, *test]
    files = [path for group in groups for path in group.files]

    def key() -> str:
        layout = [(group.name, group.label, len(group.files)) for group in groups]
        return cache_key(f"images {size} {layout}", files)

    def fill(folder: Path) -> None:
        piece = max(1, min(PIECE, PIECE_BYTES // (3 * size * size)))
        pieces = [
            (group, start, group.files[start : start + piece])
            for group in groups
            for start in range(0, len(group.files), piece)
        ]
        index = Index(
            names=tuple(f"{group.name}[{start}]" for group, start, _ in pieces),
            sizes=tuple(len(part) for _, _, part in pieces),
            training=sum(-(-len(group.files) // piece) for group in train),
            shape=spec.input_shape,
        )

        def decoded() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
            log.info("reading %d images in %s (once)", len(files), source)
            for number, (group, _, part) in enumerate(pieces):
                images = np.stack([resized(path, size) for path in part])
                yield number, images, np.full(len(part), group.label, dtype=np.uint8)

        write_cache(folder, index, decoded())
        if key() != folder_key:
            raise InputError(f"the images in {source} changed while they were read; run again")

    folder_key = key()
    create(place / folder_key, fill)
    cached = open_cache(place / folder_key)
    return Dataset(
        spec=spec,
        encoding=config.encoding,
        inputs=cached.inputs,
        targets=cached.targets,
        train_size=sum(len(group.files) for group in train),
        users=None,
        class_names=class_names,
        fingerprint=cached.fingerprint,
        augmentation=config.augmentation,
    )


def resized(path: Path, size: int) -> np.ndarray:
    """One image as uint8 ``[3, size, size]``: converted to RGB and, unless it has that size, resized to it (bilinear).

    Raises:
        InputError: the file is not an image that can be decoded whole.
    """
    try:
        return decode_image(path, "RGB", size, "bilinear")
    except InputError as error:
        raise InputError(f"{path} {error}") from error
