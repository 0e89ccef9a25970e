"""The base class of datasets of colour images."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.data.datasets.augmentation import Augmentation
from fedrun.data.datasets.base import DatasetConfig, Scaled

Mean = Annotated[float, Ge(0), Le(1)]
Std = Annotated[float, Gt(0), Le(1)]


@config_class
class ColourImages(DatasetConfig):
    """Base class of RGB images, stored as uint8 ``[n, 3, height, width]``, encoded as ``(stored / 255 - mean) / std``.

    Attributes:
        mean: mean of red, green and blue, subtracted from stored/255; zeros change nothing.
        std: standard deviation of red, green and blue, divides the difference; ones change nothing.
        augmentation: random changes of training images; None: no changes.
    """

    mean: tuple[Mean, Mean, Mean]
    std: tuple[Std, Std, Std]
    augmentation: Augmentation | None

    @property
    def encoding(self) -> Scaled:
        """Turns stored images into network inputs."""
        if self.mean == (0.0, 0.0, 0.0) and self.std == (1.0, 1.0, 1.0):
            return Scaled(divisor=255.0)
        return Scaled(divisor=255.0, mean=self.mean, std=self.std)
