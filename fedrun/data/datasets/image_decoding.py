"""Single images in the usual file formats (JPEG, PNG, ...), decoded to uint8."""

from __future__ import annotations

import re
import reprlib
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from PIL import ImageFile

OPENING = threading.Lock()
MODES = frozenset({"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
"""Pillow's names of the pixel types that become grey or RGB of 8 bits without loss of range."""

SIXTEEN_BITS = re.compile(r";16[BLN]|^\('RGB', \d{4,}\)$")
"""What Pillow passes to its decoder if a file has 16 bits per colour, of which RGB keeps the upper 8: a type such as
RGB;16B, or RGB and the largest number in a PPM file."""

MOST_PIXELS = 89_478_485
"""Pillow's own limit, from which on it warns: 268 MB in RGB."""

Resampling = Literal["bilinear", "bicubic"]


def decode_image(source: Path | bytes, mode: Literal["L", "RGB"], side: int, resize: Resampling | None) -> np.ndarray:
    """One image, uint8 ``[1 or 3, side, side]``.

    Args:
        source: the file, or its content.
        mode: grey (``L``, one channel) or ``RGB``; other images are converted.
        side: height and width in pixels.
        resize: how an image of another size is resized, whatever its proportions; None: it is an error.

    Raises:
        InputError: with the reason; the caller puts the image's name in front.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with _opened(source) as file:
            if file.mode not in MODES:
                raise ValueError(f"its pixels are of type {file.mode}, not 8 bits per colour")
            if any(SIXTEEN_BITS.search(str(tile[3])) for tile in file.tile):
                raise ValueError(f"its pixels are of type {file.mode} with 16 bits, not 8 bits per colour")
            if file.width * file.height > MOST_PIXELS:
                raise ValueError(f"it has {file.width}x{file.height} pixels; allowed: up to {MOST_PIXELS} in all")
            image = file.convert(mode)
        if resize is not None and image.size != (side, side):
            image = image.resize((side, side), Image.Resampling[resize.upper()])
    except FileNotFoundError:
        raise InputError("is missing") from None
    except Image.DecompressionBombError:
        raise InputError(f"cannot be decoded (it has more than {2 * MOST_PIXELS} pixels)") from None
    except Exception as error:  # a damaged image can fail in any way
        reason = "not an image" if isinstance(error, UnidentifiedImageError) else " ".join(str(error).split())
        raise InputError(f"cannot be decoded ({reason or type(error).__name__})") from error
    if image.size != (side, side):
        raise InputError(f"has {image.size[0]}x{image.size[1]} pixels instead of {side}x{side}")
    pixels = np.asarray(image)
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


@contextmanager
def _opened(source: Path | bytes) -> Iterator[ImageFile.ImageFile]:
    """Open an image; only its header is read here.

    Pillow's own warning about many pixels is suppressed, because the caller reports them. Warning filters are global to
    the process, so only one thread at a time changes them.
    """
    from PIL import Image

    if isinstance(source, Path) and source.exists() and not source.is_file():
        raise ValueError("it is not a regular file")
    with OPENING, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        file = Image.open(BytesIO(source) if isinstance(source, bytes) else source)
    with file:
        yield file


def decode_embedded_image(item: Any, mode: Literal["L", "RGB"], side: int, resize: Resampling | None) -> np.ndarray:
    """An image as the hub's Parquet files have it: a record whose ``bytes`` are the content of a file.

    Raises:
        InputError: the record has no content, or it cannot be used; see :func:`decode_image`.
    """
    content = item.get("bytes") if isinstance(item, dict) else None
    if not isinstance(content, bytes):
        raise InputError(f"{reprlib.repr(item)} is not an image with bytes")
    try:
        return decode_image(content, mode, side, resize)
    except InputError as error:
        raise InputError(f"image {item.get('path') or 'without a name'} {error}") from error
