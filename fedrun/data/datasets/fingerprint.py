"""Fingerprints of data: the same content has the same fingerprint wherever it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def fingerprint(parts: Iterable[bytes | str | int | np.ndarray]) -> str:
    """128 bits of BLAKE2b, in hexadecimal, over texts, numbers and arrays (with their types and shapes)."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            content = part if isinstance(part, bytes) else str(part).encode()
            digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()
