"""Fingerprints of data: the same content has the same fingerprint wherever it is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch


def fingerprint(parts: Iterable[bytes | str | int | np.ndarray | torch.Tensor]) -> str:
    """128 bits of BLAKE2b, in hexadecimal, over strings, numbers, arrays and tensors (with their types and shapes)."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        elif isinstance(part, torch.Tensor):
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        else:
            content = part if isinstance(part, bytes) else str(part).encode()
            digest.update(f"{len(content)}:".encode() + content)
    return digest.hexdigest()
