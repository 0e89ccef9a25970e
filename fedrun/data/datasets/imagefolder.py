"""A user's own images: one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from annotated_types import Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.datasets.image_cache import ClassFiles, class_folders, images_in, split_files
from fedrun.data.datasets.image_files import ImageFiles
from fedrun.system.errors import InputError

Split = tuple[tuple[str, ...], list[ClassFiles], list[ClassFiles]]
"""Names of the classes, training images, test images."""


@config_class
class ImageFolder(ImageFiles):
    """Images in ``train/<class>/`` and ``test/<class>/``, or in ``<class>/`` with a share of each class for the test.

    Classes are numbered in the order of their folders' names, samples ordered by class and then by file name.

    Attributes (besides those of :class:`ImageFiles`):
        test_share: None if there are folders ``train`` and ``test``. Otherwise the share f of each class for the test:
            the n-th image (from 0, by file name) is a test image if ⌊(n + 1) f⌋ > ⌊n f⌋. The split is the same for
            every seed.
    """

    test_share: Annotated[float, Gt(0), Lt(1)] | None

    def load(self) -> Dataset:
        """Map the cache, after making it from the image files if they have none yet.

        Raises:
            InputError: folders are missing, not as many as ``classes`` or without images; an image cannot be decoded;
                the cache is damaged or cannot be written.
        """
        if self.test_share is None:
            return self.decoded(*self._published_split(self.source))
        return self.decoded(*self._own_split(self.source, self.test_share))

    def _published_split(self, source: Path) -> Split:
        for split in ("train", "test"):
            if not (source / split).is_dir():
                raise InputError(
                    f"{source / split}: no such folder, or it cannot be read; allowed: train and test in {source}, "
                    "each with one folder of images per class; or one folder per class, and dataset.test_share=0.2"
                )
        folders, test_folders = class_folders(source / "train"), class_folders(source / "test")
        names = self._checked(folders, source / "train")
        if unknown := [name for name in test_folders if name not in folders]:
            raise InputError(f"{source / 'test'} has the class {unknown[0]!r}, which is not in {source / 'train'}")
        train, test = (
            [ClassFiles(f"{split}/{name}", names.index(name), images_in(path)) for name, path in classes.items()]
            for split, classes in (("train", folders), ("test", test_folders))
        )
        return names, train, test

    def _own_split(self, source: Path, share: float) -> Split:
        folders = class_folders(source)
        if folders.keys() >= {"train", "test"}:  # a third one may be for validation
            raise InputError(f"{source} has its own train and test; set dataset.test_share=null")
        names = self._checked(folders, source)
        train, test = [], []
        for label, (name, path) in enumerate(folders.items()):
            train_files, test_files = split_files(images_in(path), share)
            train.append(ClassFiles(f"train/{name}", label, train_files))
            if test_files:
                test.append(ClassFiles(f"test/{name}", label, test_files))
        if not test:
            raise InputError(f"dataset.test_share={share} leaves no test image of {source}; allowed: a larger share")
        return names, train, test

    def _checked(self, folders: dict[str, Path], parent: Path) -> tuple[str, ...]:
        """The names of the classes, after the check that there are as many as the model expects."""
        if len(folders) < 2:
            raise InputError(f"{parent} has {len(folders)} class folders; allowed: at least 2")
        if len(folders) != self.classes:
            raise InputError(
                f"dataset.classes={self.classes}, but {parent} has {len(folders)} class folders; "
                f"set dataset.classes={len(folders)}"
            )
        return tuple(folders)
