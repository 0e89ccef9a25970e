"""Random crops, flips and rotations of batches of training images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.system.randomness import generator

Share = Annotated[float, Ge(0), Le(1)]

UNIFORMS = 5
"""Random numbers per image: crop or not, down, right, flip or not, angle."""

CHUNK = 512
"""Images per step; more would need memory and would not be faster."""


@config_class
class Augmentation:
    """A crop, then a flip, then a rotation, drawn independently for every image and epoch.

    Stored images are changed, before they are normalised. Padding, cropping, flipping and rotating (to the
    nearest pixel, as torchvision's RandomRotation does) only move pixels, so they are one gather.

    Attributes:
        pad: pixels by which an image is padded on every side before a crop of the original size.
        crop: probability of cropping; 1 in FedConcat, 0.5 in FedDC.
        flip: probability of a horizontal flip.
        rotation: degrees; the angle is uniform from -rotation to rotation.
        fill: pixels beyond the borders: ``reflect``, the image mirrored at its outermost pixels; or a colour, red,
            green and blue from 0 to 1, rounded to one of 256 levels: zeros are black; the dataset's mean is zero after
            normalisation, as in FedDC.
    """

    pad: Annotated[int, Ge(0)]
    crop: Share
    flip: Share
    rotation: Annotated[float, Ge(0), Le(180)]
    fill: Literal["reflect"] | tuple[Share, Share, Share]

    def drawn(self, seed: int, round: int, client: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """The augmentation of one client in one round, to be called with the images of each epoch in turn."""
        draw = draws(seed, round, client)
        return lambda images: self(images, draw(len(images)).to(images.device))

    def __call__(self, images: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        """Augment images.

        Args:
            images: uint8 ``[n, 3, height, width]``.
            uniforms: float32 ``[n, 5]`` in [0, 1) on the same device, see :data:`UNIFORMS`.

        Returns:
            New images of the same shape and type.
        """
        parts = zip(torch.split(images, CHUNK), torch.split(uniforms, CHUNK), strict=True)
        return torch.cat([self._gather(part, numbers) for part, numbers in parts])

    def _gather(self, images: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
        height, width = images.shape[-2:]
        cropped, down, right, flipped, turned = uniforms[:, :, None, None].unbind(1)  # [n, 1, 1] each
        rows, columns = self._rotated(height, width, turned)
        rows, columns, outside = self._within(rows, columns, height, width)
        columns = torch.where(flipped < self.flip, width - 1 - columns, columns)
        rows = rows + self._shift(down, cropped)
        columns = columns + self._shift(right, cropped)
        rows, columns, beyond = self._within(rows, columns, height, width)
        source = (rows * width + columns).view(len(images), 1, -1).expand(-1, images.shape[1], -1)
        moved = images.flatten(2).gather(2, source).view(images.shape)
        if self.fill == "reflect":
            return moved
        fill = torch.tensor([round(255 * share) for share in self.fill], dtype=images.dtype, device=images.device)
        return torch.where((beyond | outside)[:, None], fill[:, None, None], moved)

    def _rotated(self, height: int, width: int, turned: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and column, before the rotation, of each pixel after it; int64, to be broadcast to ``[n, H, W]``."""
        rows = torch.arange(height, device=turned.device)[None, :, None]
        columns = torch.arange(width, device=turned.device)[None, None, :]
        if not self.rotation:
            return rows, columns
        angle = (2 * turned - 1) * math.radians(self.rotation)  # counter-clockwise
        y, x = rows - (height - 1) / 2, columns - (width - 1) / 2
        sine, cosine = angle.sin(), angle.cos()
        back_y, back_x = sine * x + cosine * y, cosine * x - sine * y
        return (back_y + height / 2).floor().long(), (back_x + width / 2).floor().long()

    def _shift(self, uniform: torch.Tensor, cropped: torch.Tensor) -> torch.Tensor:
        """Offset of the crop below or to the right of the image in pixels, int64 from -pad to pad."""
        shift = (uniform * (2 * self.pad + 1)).long().clamp_max(2 * self.pad) - self.pad
        return torch.where(cropped < self.crop, shift, 0)

    def _within(
        self, rows: torch.Tensor, columns: torch.Tensor, height: int, width: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows and columns moved inside the image, and which of these pixels were outside."""
        outside = (rows < 0) | (rows >= height) | (columns < 0) | (columns >= width)
        if self.fill == "reflect":
            return reflected(rows, height), reflected(columns, width), outside
        return rows.clamp(0, height - 1), columns.clamp(0, width - 1), outside


def draws(seed: int, round: int, client: int) -> Callable[[int], torch.Tensor]:
    """A function that draws the uniforms ``[n, 5]`` of one client and round, called with n for each epoch in turn."""
    source = generator(seed, "augmentation", round, client)
    return lambda images: torch.rand(images, UNIFORMS, generator=source)


def reflected(index: torch.Tensor, size: int) -> torch.Tensor:
    """Any integers mapped to ``0 .. size - 1`` by reflection at the first and the last, which are not repeated."""
    if size == 1:
        return torch.zeros_like(index)
    last = size - 1
    return last - (index.remainder(2 * last) - last).abs()
