"""Vectors that outlive a round: in main memory up to a limit, beyond it in a memory-mapped file."""

from __future__ import annotations

import math
import os
import tempfile
import weakref
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from fedrun.system.checksums import DamagedFileError
from fedrun.system.writing import writing

CHUNK_BYTES = 64 * 2**20
"""The file grows by at least this much."""

ALIGNMENT = 64
"""Bytes. Rounding in kernels depends on a vector's alignment; a result must not depend on where a vector lies."""


@dataclass(frozen=True)
class Slot:
    """The position of a vector in the file.

    Attributes:
        number: number of the slot.
        length: the vector's length.
        crc32: of the vector's bytes.
    """

    number: int
    length: int
    crc32: int


class VectorStore:
    """Stores copies of vectors as long as they are referenced.

    Vectors that do not fit into main memory are stored in slots of a file. A slot is not overwritten while its vector
    is referenced. So a checkpoint can refer to slots if its state is referenced until the next checkpoint.

    Args:
        length: length of the file's slots. Longer vectors stay in main memory.
        limit: bytes of vectors in main memory.
        path: path of the file, which is created when needed; None: a temporary file.
        writable: false: the file is only read; vectors that are stored stay in main memory.
    """

    def __init__(self, length: int, limit: float, path: Path | None = None, writable: bool = True) -> None:
        self._length = length
        self._writable = writable
        self._slot_bytes = -(-4 * length // ALIGNMENT) * ALIGNMENT
        self._limit = limit
        self._path = path
        self._file: int | None = None
        self._in_memory = 0
        self._chunks: list[tuple[int, np.memmap]] = []  # first slot, and the mapped slots from there on
        self._free: list[int] = []
        self._slots: dict[int, Slot] = {}  # of the referenced vectors, by their address

    def reader(self, path: Path) -> VectorStore:
        """A store that reads another file with the same slots."""
        return VectorStore(self._length, math.inf, path, writable=False)

    def keep(self, vector: torch.Tensor) -> torch.Tensor:
        """A stored float32 copy of a vector, on the CPU.

        Raises:
            RunError: the disk is full.
        """
        size = 4 * vector.numel()
        if self._in_memory + size <= self._limit or size > self._slot_bytes:
            copy = vector.detach().to("cpu", torch.float32, copy=True)
            self._in_memory += size
            weakref.finalize(copy, self._released, size)
            return copy
        if not self._free:
            with writing(self._path or Path(tempfile.gettempdir())):
                self._grow()
        number, length = self._free.pop(), vector.numel()
        mapped = self._mapped(number, length).copy_(vector.detach())
        return self._referenced(mapped, Slot(number, length, _crc32(mapped)))

    def read(self, slot: Slot) -> torch.Tensor:
        """The vector in a slot, which is in use while the vector is referenced.

        Raises:
            DamagedFileError: the file has no such slot, or its content differs from the slot's checksum.
        """
        vector = self._mapped(slot.number, slot.length)
        if _crc32(vector) != slot.crc32:
            raise DamagedFileError(f"the checksum of slot {slot.number} differs")
        return self._referenced(vector, slot)

    def slot(self, vector: torch.Tensor) -> Slot | None:
        """The slot of a vector that :meth:`keep` or :meth:`read` returned; None if the vector is in main memory."""
        return self._slots.get(vector.data_ptr())

    def reopen(self, used: Iterable[Slot]) -> None:
        """Open the file of an earlier process; the slots that are not ``used`` are free.

        Raises:
            OSError: it cannot be opened.
        """
        slots = os.fstat(self._opened()).st_size // self._slot_bytes
        self._chunks = [(0, self._map(0, slots))] if slots else []
        self._free = sorted(set(range(slots)) - {slot.number for slot in used}, reverse=True)

    def flush(self) -> None:
        """Write everything to the disk."""
        for _, mapped in self._chunks:
            mapped.flush()

    def _mapped(self, number: int, length: int) -> torch.Tensor:
        """The first ``length`` numbers of a slot, mapped from the file: float32 ``[length]``."""
        for first, slots in self._chunks:
            if first <= number < first + len(slots):
                return torch.from_numpy(slots[number - first, :length])
        raise DamagedFileError(f"slot {number} is missing")

    def _referenced(self, vector: torch.Tensor, slot: Slot) -> torch.Tensor:
        """The same vector; its slot becomes free when nothing references it any more."""
        self._slots[vector.data_ptr()] = slot
        weakref.finalize(vector, self._vacated, vector.data_ptr())
        return vector

    def _opened(self) -> int:
        """The file, which is deleted with this object if it is a temporary one."""
        if self._file is None:
            if self._path is None:
                with tempfile.TemporaryFile() as temporary:
                    self._file = os.dup(temporary.fileno())  # it closes with this object
            else:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT if self._writable else os.O_RDONLY, 0o644)
            weakref.finalize(self, os.close, self._file)
        return self._file

    def _grow(self) -> None:
        file, first = self._opened(), sum(len(mapped) for _, mapped in self._chunks)
        slots = max(1, CHUNK_BYTES // self._slot_bytes)
        if hasattr(os, "posix_fallocate"):
            # Space is reserved now, because a write to a mapped page without disk space would kill the process.
            os.posix_fallocate(file, first * self._slot_bytes, slots * self._slot_bytes)
        else:
            os.ftruncate(file, (first + slots) * self._slot_bytes)
        self._chunks.append((first, self._map(first, slots)))
        self._free += range(first + slots - 1, first - 1, -1)

    def _map(self, first: int, slots: int) -> np.memmap:
        with os.fdopen(os.dup(self._opened()), "r+b" if self._writable else "rb") as file:
            mode: Literal["r+", "c"] = "r+" if self._writable else "c"  # c: a change stays in this process
            return np.memmap(file, np.float32, mode, first * self._slot_bytes, (slots, self._slot_bytes // 4))

    def _released(self, size: int) -> None:
        self._in_memory -= size

    def _vacated(self, address: int) -> None:
        self._free.append(self._slots.pop(address).number)


def _crc32(vector: torch.Tensor) -> int:
    """The CRC-32 of a vector on the CPU."""
    return zlib.crc32(vector.numpy().data)
