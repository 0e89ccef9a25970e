"""The compact copy of a dataset: made once from its source files, then memory-mapped.

A cache is a folder of three files and their checksums. ``inputs.bin`` has the samples, one after another, and
``targets.bin`` one byte for each of their classes; ``meta.json`` has the users. For samples without users, such as
images in folders, a piece of a class's files is stored like a user. A cache gets its final name only when it is
complete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch

from fedrun.data.datasets.regular_file import stat_regular
from fedrun.data.download.catalogue import CACHE
from fedrun.data.offsets import offsets_of
from fedrun.system.checksums import CHECKSUMS, damaged_files, write_checksums
from fedrun.system.errors import InputError
from fedrun.system.fingerprint import fingerprint
from fedrun.system.folder_lock import waiting_lock
from fedrun.system.user_path import user_path

FORMAT = 3
"""Part of a cache's key, see :func:`cache_key`; it is increased when the format of the files changes."""

FILES = (CHECKSUMS, "inputs.bin", "meta.json", "targets.bin")
"""The files of a cache."""

StoredType = Literal["uint8", "float32"]
"""The types in which samples are stored."""


@dataclass(frozen=True)
class Index:
    """The users of a cache and their numbers of samples; the samples are in the order of the users.

    Attributes:
        names: one name per user, the training users first.
        sizes: number of samples of each user.
        training: number of training users.
        shape: shape of one sample.
        dtype: type of its numbers.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    training: int
    shape: tuple[int, ...]
    dtype: StoredType = "uint8"

    @property
    def offsets(self) -> np.ndarray:
        """int64 ``[users + 1]``: user u has samples ``offsets[u]`` to ``offsets[u + 1]``."""
        return offsets_of(self.sizes)

    @property
    def sample_bytes(self) -> int:
        """Size of one sample in the file."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Cached:
    """An open cache.

    Attributes:
        index: the users and their numbers of samples.
        inputs: ``[n, *index.shape]`` of the index's type, mapped from the file: pages are read when used, never written
            back.
        targets: int64 ``[n]``.
        fingerprint: a hash of the content.
    """

    index: Index
    inputs: torch.Tensor
    targets: torch.Tensor
    fingerprint: str


def cache_place(source: Path, cache_dir: str | None, name: str) -> Path:
    """The folder of a dataset's caches: next to the source, or below ``cache_dir`` under the dataset's name."""
    return source / CACHE if cache_dir is None else user_path(cache_dir, "cache_dir") / name


def cache_key(what: str, files: Iterable[Path]) -> str:
    """The name of a cache's folder: it changes when a source file's name, size or time of change does.

    Args:
        what: how samples are stored.
        files: the source files; each is named by its folder's name and its own.

    Raises:
        InputError: a file cannot be examined or is not a regular file.
    """
    parts: list[str | int] = [FORMAT, what]
    for path in files:
        status = stat_regular(path)
        parts += [path.parent.name, path.name, status.st_size, status.st_mtime_ns]
    return fingerprint(parts)


def create(folder: Path, fill: Callable[[Path], None]) -> None:
    """Make a cache unless it exists. If several processes need the same one, the first makes it.

    Args:
        folder: the cache's final name.
        fill: writes the cache's files to a given temporary folder, which is renamed afterwards.

    Raises:
        InputError: the folder cannot be written or is full. No incomplete cache remains.
    """
    try:
        if folder.is_dir():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        with waiting_lock(folder.parent) as exclusive:
            if folder.is_dir():
                return
            if exclusive:  # remove the partial folders of killed processes
                for partial in folder.parent.glob(f"{folder.name}.*.partial"):
                    shutil.rmtree(partial, ignore_errors=True)
            partial = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.partial")
            partial.mkdir()
            try:
                fill(partial)
                write_checksums(partial, sorted(path.name for path in partial.iterdir()))
                _sync_folder(partial)
                _rename(partial, folder)
                _sync_folder(folder.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, (str, os.PathLike)) else folder
        if where not in folder.parents and folder.parent not in where.parents:
            raise InputError(f"{where} cannot be read: {error.strerror}") from error  # a source
        raise InputError(
            f"the cache {folder.parent} cannot be written ({error.strerror}): "
            "set cache_dir to a writable folder with enough space"
        ) from error


def write_cache(folder: Path, index: Index, pieces: Iterable[tuple[int, np.ndarray, np.ndarray]]) -> None:
    """Write the three files of a cache, with one piece of one user in memory at a time.

    Args:
        folder: an empty folder.
        index: the users and their numbers of samples.
        pieces: the samples of each user of the index, in one piece or several, users in any order: number, samples
            ``[m, *index.shape]`` of the index's type, classes uint8 ``[m]``.

    Raises:
        InputError: a user's pieces do not add up to its size, because a source has changed between two readings.
        OSError: the folder cannot be written or has too little space.
    """
    offsets = index.offsets
    needed, free = int(offsets[-1]) * (index.sample_bytes + 1), shutil.disk_usage(folder).free
    if needed > free:  # reported now, not after minutes of reading
        raise OSError(errno.ENOSPC, f"{needed / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free")
    written = np.zeros(len(index.names), np.int64)
    unfinished: dict[int, tuple[hashlib.blake2b, hashlib.blake2b]] = {}
    digests = [b""] * len(index.names)
    with open(folder / "inputs.bin", "wb") as inputs_file, open(folder / "targets.bin", "wb") as targets_file:
        for user, inputs, targets in pieces:
            if written[user] + len(targets) > index.sizes[user]:
                raise _changed(index, user, f"at least {written[user] + len(targets)}")
            place = int(offsets[user] + written[user])
            hashes = unfinished.pop(user, None) or (_hash(), _hash())
            for file, hashed, array, width, dtype in (
                (inputs_file, hashes[0], inputs, index.sample_bytes, index.dtype),
                (targets_file, hashes[1], targets, 1, "uint8"),
            ):
                content = np.ascontiguousarray(array, dtype=dtype).data.cast("B")
                if len(content) != len(targets) * width:
                    raise ValueError(f"{len(content)} bytes for {len(targets)} samples of {width}")
                file.seek(place * width)
                file.write(content)
                hashed.update(content)
            written[user] += len(targets)
            if written[user] == index.sizes[user]:  # not all hashes at once: there may be 660 000 users
                digests[user] = hashes[0].digest() + hashes[1].digest()
            else:
                unfinished[user] = hashes
        _sync(inputs_file)
        _sync(targets_file)
    for user in np.flatnonzero(written != index.sizes)[:1]:
        raise _changed(index, user, str(written[user]))
    content_fingerprint = fingerprint([*index.shape, index.dtype, index.training, *index.names, *index.sizes, *digests])
    with open(folder / "meta.json", "w", encoding="utf-8") as meta_file:
        json.dump({**asdict(index), "fingerprint": content_fingerprint}, meta_file)
        _sync(meta_file)


def _changed(index: Index, user: int, size: str) -> InputError:
    return InputError(
        f"user {index.names[user]!r} had {index.sizes[user]} samples and now has {size}: the files changed while they "
        "were read; run again"
    )


def _hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)


def open_cache(folder: Path) -> Cached:
    """Map a cache into memory, after a comparison of its files with their checksums.

    They are compared once per process while their sizes and times stay the same.

    Raises:
        InputError: a file of the cache is missing, cut short or altered; it names the file and the folder to delete.
    """
    try:
        states = [(folder / name).stat() for name in FILES]
        damaged = damaged_cache_files(folder, tuple((state.st_size, state.st_mtime_ns) for state in states))
        if damaged:
            raise _damaged(damaged[0], "differs from its checksum")
        meta = json.loads((folder / "meta.json").read_bytes())
    except OSError as error:
        raise _damaged(Path(error.filename or folder), "cannot be read") from error
    lists = {key: tuple(meta[key]) for key in ("names", "sizes", "shape")}
    index = Index(**lists, training=meta["training"], dtype=meta["dtype"])
    samples = sum(index.sizes)
    inputs = _mapped(folder / "inputs.bin", samples * index.sample_bytes)
    return Cached(
        index=index,
        inputs=inputs.view(getattr(torch, index.dtype)).view(samples, *index.shape),
        targets=_mapped(folder / "targets.bin", samples).to(torch.int64),
        fingerprint=meta["fingerprint"],
    )


@cache
def damaged_cache_files(folder: Path, states: tuple[tuple[int, int], ...]) -> list[Path]:
    """The damaged files of a cache whose :data:`FILES` have these sizes (bytes) and times of change (ns)."""
    return damaged_files(folder)


def _mapped(path: Path, size: int) -> torch.Tensor:
    """uint8 ``[size]``, a private mapping of a file: it is not copied, and the file cannot be changed through it."""
    try:
        return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    except RuntimeError as error:
        raise _damaged(path, "cannot be mapped into memory") from error


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} {reason}: the cache is damaged; delete the folder {path.parent} and run again")


def _rename(partial: Path, folder: Path) -> None:
    """Give a complete cache its name, unless another process was faster: then there is nothing left to do."""
    try:
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
