"""Single pictures in the formats that people exchange (JPEG, PNG, ...), decoded to uint8."""

from __future__ import annotations

import reprlib
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrun.system.errors import InputError

MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
"""Pillow's names of the pixel types that become grey or RGB of 8 bits without loss of range."""

Resampling = Literal["bilinear", "bicubic"]


def decode_image(source: Path | bytes, mode: Literal["L", "RGB"], side: int, squeeze: Resampling | None) -> np.ndarray:
    """One picture, uint8 ``[1 or 3, side, side]``.

    Args:
        source: the file, or its content.
        mode: grey (``L``, one channel) or ``RGB``; other pictures are converted.
        side: height and width in pixels.
        squeeze: how a picture of another size is resized, whatever its proportions; None: it is refused.

    Raises:
        InputError: says what is wrong, to follow the name of the picture.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as file:
            if file.mode not in MODES:
                raise ValueError(f"its pixels are of type {file.mode}, not 8 bits per colour")
            if Image.MAX_IMAGE_PIXELS is not None and file.width * file.height > Image.MAX_IMAGE_PIXELS:
                raise ValueError(f"it has {file.width}x{file.height} pixels")
            image = file.convert(mode)
        if squeeze is not None and image.size != (side, side):
            image = image.resize((side, side), Image.Resampling[squeeze.upper()])
    except FileNotFoundError:
        raise InputError("is missing") from None
    except Exception as error:  # a damaged picture can fail in any way
        reason = "not a picture" if isinstance(error, UnidentifiedImageError) else " ".join(str(error).split())
        raise InputError(f"cannot be decoded ({reason or type(error).__name__})") from error
    if image.size != (side, side):
        raise InputError(f"has {image.size[0]}x{image.size[1]} pixels instead of {side}x{side}")
    pixels = np.asarray(image)
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


def decode_embedded_image(item: Any, mode: Literal["L", "RGB"], side: int, squeeze: Resampling | None) -> np.ndarray:
    """A picture as the hub's Parquet files have it: a record whose ``bytes`` are the content of a file.

    Raises:
        InputError: the record has no content, or it cannot be used; see :func:`decode_image`.
    """
    content = item.get("bytes") if isinstance(item, dict) else None
    if not isinstance(content, bytes):
        raise InputError(f"{reprlib.repr(item)} is not a picture with bytes")
    try:
        return decode_image(content, mode, side, squeeze)
    except InputError as error:
        raise InputError(f"picture {item.get('path') or 'without a name'} {error}") from error
