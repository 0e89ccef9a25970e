"""Checksums of the files that fedrun writes and reads back.

CRC-32 finds every flipped bit, every damage within 32 bits, and all but one in 2^32 of the others. ``zlib`` computes it
at about the speed of memory (4 GB/s on one core of a server of 2023; xxHash would need a package, SHA-256 reaches
1.4 GB/s).

There are two forms. The checksum of a single file is its last line, ``crc32 1a2b3c4d`` (:func:`write_sealed`,
:func:`read_sealed`). The checksums of several files are in a separate file in their folder (:func:`write_checksums`,
:func:`damaged_files`), which is sealed itself.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from fedrun.system.atomic_file import atomic_write

CHECKSUMS = "checksums.txt"
"""The file with the checksums of the files in its folder."""

SEAL = re.compile(rb"crc32 ([0-9a-f]{8})\n")
SEAL_BYTES = 15
BLOCK_BYTES = 1 << 20

LISTED = re.compile(r"([0-9a-f]{8}) (\d+) (.+)")
"""A line of the file of checksums: CRC-32, size in bytes, path relative to the folder."""


class DamagedFileError(Exception):
    """A file differs from what fedrun wrote. The message says how, without the name of the file."""


class SealedFile:
    """A file that is being written, and the CRC-32 of its content so far."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc32 = 0

    def write(self, content: bytes) -> int:
        self.crc32 = zlib.crc32(content, self.crc32)
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def write_sealed(path: Path, shared: bool = False) -> Iterator[IO[bytes]]:
    """Write a file atomically, with the checksum of its content as its last line.

    Args:
        path: path of the file.
        shared: see :func:`fedrun.system.atomic_file.atomic_write`.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_write(path, shared) as file:
        sealed = SealedFile(file)
        yield cast("IO[bytes]", sealed)  # it has the methods that writers call
        file.write(b"crc32 %08x\n" % sealed.crc32)


def require_seal(file: BinaryIO) -> int:
    """Check the content of a file against the checksum at its end.

    Args:
        file: opened for reading. Afterwards its position is the beginning.

    Returns:
        Length of the content without the checksum, bytes.

    Raises:
        DamagedFileError: the checksum is missing or differs.
    """
    length = file.seek(0, 2) - SEAL_BYTES
    file.seek(max(length, 0))
    seal = SEAL.fullmatch(file.read())
    if length < 0 or seal is None:
        raise DamagedFileError("its checksum is missing")
    file.seek(0)
    if crc32_of(file, length) != int(seal[1], 16):
        raise DamagedFileError("its checksum differs")
    file.seek(0)
    return length


def read_sealed(path: Path) -> bytes:
    """The content of a file that :func:`write_sealed` wrote, without the checksum.

    Raises:
        OSError: the file cannot be read.
        DamagedFileError: the checksum is missing or differs.
    """
    with path.open("rb") as file:
        return file.read(require_seal(file))


def crc32_of(file: BinaryIO, length: int | None = None) -> int:
    """The CRC-32 of the next ``length`` bytes of a file, or of the rest of the file."""
    crc32, left = 0, length
    while block := file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)):
        crc32 = zlib.crc32(block, crc32)
        if left is not None:
            left -= len(block)
    return crc32


def checksum_line(name: str, crc32: int, size: int) -> str:
    """A line of the file of checksums."""
    return f"{crc32:08x} {size} {name}\n"


def write_checksums(folder: Path, names: Iterable[str], more: Iterable[str] = ()) -> None:
    """Write ``checksums.txt``.

    Args:
        folder: folder of the files.
        names: names of the files, relative to the folder.
        more: further lines, of files that do not exist yet (:func:`checksum_line`).

    Raises:
        OSError: a file cannot be read, or ``checksums.txt`` cannot be written.
    """
    lines = []
    for name in names:
        with (folder / name).open("rb") as file:
            lines.append(checksum_line(name, crc32_of(file), file.tell()))
    with write_sealed(folder / CHECKSUMS) as sealed:
        sealed.write("".join([*lines, *more]).encode())


def damaged_files(folder: Path) -> list[Path]:
    """The files that differ from ``checksums.txt``, or that file itself if it is damaged.

    Files that do not exist are not reported. Without ``checksums.txt`` no file is reported.

    Raises:
        OSError: a file cannot be read.
    """
    try:
        listed = _listed(folder)
    except (DamagedFileError, UnicodeDecodeError):
        return [folder / CHECKSUMS]
    return [folder / line[3] for line in listed if _differs(folder / line[3], line)]


def missing_files(folder: Path) -> list[str]:
    """The names of the files in ``checksums.txt``, relative to the folder, that do not exist.

    Raises:
        OSError: a file cannot be read.
        DamagedFileError: ``checksums.txt`` is damaged.
    """
    return [line[3] for line in _listed(folder) if not (folder / line[3]).exists()]


def _listed(folder: Path) -> list[re.Match[str]]:
    """The lines of ``checksums.txt``; none without that file."""
    try:
        text = read_sealed(folder / CHECKSUMS).decode()
    except FileNotFoundError:
        return []
    return [line for line in map(LISTED.fullmatch, text.splitlines()) if line is not None]


def _differs(path: Path, line: re.Match[str]) -> bool:
    try:
        with path.open("rb") as file:
            return crc32_of(file) != int(line[1], 16) or file.tell() != int(line[2])
    except FileNotFoundError:
        return False
