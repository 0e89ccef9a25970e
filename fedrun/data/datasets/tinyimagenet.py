"""Tiny ImageNet, in the folders of its published archive."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Spec
from fedrun.data.datasets.cache import cache_place
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.image_cache import ClassFiles, cached_images, class_folders, images_in
from fedrun.data.datasets.regular_file import read_lines
from fedrun.data.download.catalogue import TINY_IMAGENET
from fedrun.system.errors import InputError
from fedrun.system.user_path import user_path

CLASSES = 200


@config_class
class TinyImageNet(ColourImages):
    """Tiny ImageNet: 100 000 training images of 200 kinds of things; its 10 000 validation images are the test set.

    The images are JPEG files of 64x64 pixels, a few of them grey. A class is a WordNet number such as n01443537;
    classes are numbered in that order, and samples ordered by class and then by file name.

    Attributes (besides those of :class:`ColourImages`):
        data_dir: folder in which the published archive has been unpacked as ``tiny-imagenet-200``.
        cache_dir: folder for the decoded images; None puts them next to the source, in
            ``tiny-imagenet-200/.fedrun-cache``.
        size: 64 keeps the pixels; 32 halves the sides (bilinear with antialiasing), as in FedConcat.
    """

    name: ClassVar[str] = "tiny-imagenet-200"

    data_dir: str
    cache_dir: str | None
    size: Literal[32, 64]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, self.size, self.size), classes=CLASSES)

    def load(self) -> Dataset:
        """Map the cache, after making it from the image files if they have none yet.

        Raises:
            InputError: folders or images are missing, malformed or contradict the annotations; the cache is damaged or
                cannot be written.
        """
        source = user_path(self.data_dir, "dataset.data_dir") / self.name
        for folder in (source / "train", source / "val" / "images"):
            if not folder.is_dir():
                raise InputError(
                    f"{folder}: no such folder, or it cannot be read; run `fedrun-data tinyimagenet --data-dir "
                    f"{self.data_dir}`, or unpack {TINY_IMAGENET} in {source.parent}"
                )
        folders = class_folders(source / "train")
        if len(folders) != CLASSES:
            raise InputError(f"{source / 'train'} has {len(folders)} class folders instead of {CLASSES}")
        labels = {name: label for label, name in enumerate(folders)}
        train = [
            ClassFiles(f"train/{name}", labels[name], images_in(path / "images")) for name, path in folders.items()
        ]
        test = [
            ClassFiles(f"val/{name}", labels[name], files)
            for name, files in validation_images(source / "val", labels).items()
        ]
        place = cache_place(source, self.cache_dir, self.name)
        return cached_images(self, tuple(folders), train, test, source, place)


def validation_images(folder: Path, classes: dict[str, int]) -> dict[str, tuple[Path, ...]]:
    """The validation images of each class that has any, by ``val_annotations.txt``, in the order of classes and names.

    A line of that file is an image's name, its class and a box, separated by tabs.

    Raises:
        InputError: the file is malformed, lacks an image, or names an unknown class, a missing image or an image twice.
    """
    path = folder / "val_annotations.txt"
    images = {image.name: image for image in images_in(folder / "images")}
    by_class: dict[str, list[Path]] = {name: [] for name in classes}
    for number, line in enumerate(read_lines(path), start=1):
        name, *rest = line.split("\t")
        if not rest:
            raise InputError(f"{path}: line {number} must be an image's name, its class and a box, separated by tabs")
        if rest[0] not in by_class:
            raise InputError(
                f"{path}: line {number} has the class {rest[0]!r}, which is not in {folder.parent / 'train'}"
            )
        if name not in images:
            raise InputError(
                f"{path}: line {number} names {name!r}, which is not in {folder / 'images'} or is named twice"
            )
        by_class[rest[0]].append(images.pop(name))
    if images:
        raise InputError(f"{path} has no class for {next(iter(images))!r} in {folder / 'images'}")
    return {name: tuple(sorted(files)) for name, files in by_class.items() if files}
