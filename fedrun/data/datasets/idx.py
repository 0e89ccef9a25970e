"""IDX files, the format of MNIST: a big-endian header (magic number, then the size of each dimension), then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from fedrun.system.errors import InputError


def find_idx(folder: Path, name: str) -> Path | None:
    """The file ``name`` or else ``name.gz`` in a folder, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an IDX file of unsigned bytes, compressed (``.gz``) or not, into memory.

    Args:
        path: the file; it is only read.
        dimensions: number of dimensions the array must have.

    Returns:
        A read-only uint8 array of the shape in the header.

    Raises:
        InputError: the file cannot be read, is not IDX of unsigned bytes, or is not as long as its header says.
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    header_size = 4 + 4 * dimensions
    magic = 0x0800 + dimensions
    found = int.from_bytes(content[:4], "big")
    if len(content) < header_size or found != magic:
        raise InputError(f"{path} is not an IDX file of {dimensions}-dimensional bytes: it must begin with {magic}")
    shape = struct.unpack(f">{dimensions}I", content[4:header_size])
    expected = header_size + math.prod(shape)
    if len(content) != expected:
        raise InputError(f"{path} has {len(content)} bytes instead of the {expected} of its header's shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=header_size).reshape(shape)
