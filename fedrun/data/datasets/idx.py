"""IDX files, the format of MNIST: a big-endian header (magic number, then the size of each dimension), then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from fedrun.data.datasets.regular_file import stat_regular
from fedrun.system.errors import InputError

MOST_SAMPLES = 1_000_000
"""The largest number of samples in one file; EMNIST, the largest published dataset, has 814 255 in two."""


def read_idx(path: Path, sample_shape: tuple[int, ...]) -> np.ndarray:
    """Read an IDX file of unsigned bytes, compressed (``.gz``) or not, into memory.

    The header is checked first; only as many bytes are read or unpacked as it specifies, and one more.

    Args:
        path: the file; it is only read.
        sample_shape: shape of one sample: ``(height, width)`` of images, ``()`` of labels.

    Returns:
        A read-only uint8 array ``[n, *sample_shape]``.

    Raises:
        InputError: the file cannot be read, is not IDX with such samples, or does not have the length in its header.
    """
    stat_regular(path)
    dimensions = 1 + len(sample_shape)
    header_size = 4 + 4 * dimensions
    magic = 0x0800 + dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            header = file.read(header_size)
            if len(header) < header_size or int.from_bytes(header[:4], "big") != magic:
                raise InputError(
                    f"{path} is not an IDX file of {dimensions}-dimensional bytes: it must begin with {magic}"
                )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            if shape[1:] != sample_shape:
                actual, allowed = ("x".join(map(str, sizes)) for sizes in (shape[1:], sample_shape))
                raise InputError(f"{path} has images of {actual} pixels instead of {allowed}")
            if shape[0] > MOST_SAMPLES:
                raise InputError(f"{path} has {shape[0]} samples by its header; allowed: up to {MOST_SAMPLES}")
            expected = math.prod(shape)
            content = file.read(expected + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if len(content) != expected:
        size = "more bytes than" if len(content) > expected else f"{header_size + len(content)} bytes instead of"
        raise InputError(f"{path} has {size} the {header_size + expected} of its header's shape {shape}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
