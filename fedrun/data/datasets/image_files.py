"""A user's own images in class folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, Spec
from fedrun.data.datasets.cache import cache_place
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.image_cache import ClassFiles, cached_images
from fedrun.system.fingerprint import fingerprint
from fedrun.system.user_path import user_path


@config_class
class ImageFiles(ColourImages):
    """Base class of a user's own images in class folders, which are decoded once, into a cache.

    Attributes (besides those of :class:`ColourImages`):
        data_dir: folder in which ``folder`` is.
        cache_dir: folder for the decoded images; None puts them next to the source, in ``<folder>/.fedrun-cache``.
        folder: name of the folder with the images; it may be absolute.
        classes: number of classes; the model must know it before the folder is read.
        size: images are resized to 3 x size x size pixels, whatever their proportions.
    """

    data_dir: str
    cache_dir: str | None
    folder: str
    classes: Annotated[int, Ge(2), Le(256)]
    size: Annotated[int, Ge(1), Le(1024)]

    @property
    def spec(self) -> Spec:
        return Spec(input_shape=(3, self.size, self.size), classes=self.classes)

    @property
    def source(self) -> Path:
        """The folder with the images."""
        return user_path(self.folder, "dataset.folder", user_path(self.data_dir, "dataset.data_dir"))

    def decoded(self, names: tuple[str, ...], train: Sequence[ClassFiles], test: Sequence[ClassFiles]) -> Dataset:
        """The dataset of these image files, from the cache.

        Args:
            names: names of the classes.
            train: the training images, in order.
            test: the test images, in order.

        Raises:
            InputError: an image cannot be decoded; the cache is damaged or cannot be written.
        """
        # the folder may be absolute, or outside data_dir
        cache_name = f"{self.source.resolve().name}-{fingerprint([str(self.source.resolve())])[:8]}"
        place = cache_place(self.source, self.cache_dir, cache_name)
        return cached_images(self, names, train, test, self.source, place)
