"""What datasets of colour images share."""

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
    """Images of three colours, stored as uint8 ``[n, 3, height, width]`` and read as ``(stored / 255 - mean) / std``.

    Attributes:
        mean: of red, green and blue, subtracted from stored/255; zeros leave it as it is.
        std: of red, green and blue, divide the result; ones leave it as it is.
        augmentation: how training images are changed at random; None: not at all.
    """

    mean: tuple[Mean, Mean, Mean]
    std: tuple[Std, Std, Std]
    augmentation: Augmentation | None

    @property
    def encoding(self) -> Scaled:
        """Turns stored images into what a network reads."""
        if self.mean == (0.0, 0.0, 0.0) and self.std == (1.0, 1.0, 1.0):
            return Scaled(divisor=255.0)
        return Scaled(divisor=255.0, mean=self.mean, std=self.std)
