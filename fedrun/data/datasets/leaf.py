"""LEAF's datasets (Caldas et al. 2018, arXiv 1812.01097): samples by user, in ``train/*.json`` and ``test/*.json``.

A JSON file is ``{"users": [name], "num_samples": [n], "user_data": {name: {"x": [...], "y": [...]}}}``. FEMNIST's are
gigabytes of text, so files are streamed: one user is in memory at a time, and the decoded samples are written to a
cache (:mod:`fedrun.data.datasets.cache`) that later runs map into memory.
"""

from __future__ import annotations

import logging
import os
import re
import reprlib
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Encoding, Users
from fedrun.data.datasets.cache import (
    Cached,
    Index,
    StoredType,
    cache_key,
    cache_place,
    create,
    open_cache,
    write_cache,
)
from fedrun.data.datasets.json_nesting import BoundedNesting, NestingError
from fedrun.data.download.catalogue import UNSPLIT
from fedrun.system.errors import InputError
from fedrun.system.fingerprint import fingerprint
from fedrun.system.user_path import user_path

log = logging.getLogger(__name__)

SPLITS = ("train", "test")


class Decoder(Protocol):
    """Turns samples of one user into the arrays that a cache stores."""

    @property
    def cache_tag(self) -> str:
        """Settings other than the files that determine the arrays; part of the cache's key."""

    def decode(self, x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        """A user's samples, ``[n, *input_shape]`` of the cache's type, and classes, uint8 ``[n]``.

        Args:
            x: n > 0 samples in the source's form.
            y: their n labels.

        Raises:
            InputError: a sample cannot be used; the caller adds the file and the user.
        """

    def remark(self) -> str:
        """What was changed in the samples decoded so far, for the log; empty: nothing worth a warning."""
        return ""


class FileFormat(ABC):
    """A file format of datasets with users.

    Args:
        decoder: turns the files' samples into arrays.
    """

    suffix: ClassVar[str]

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    @abstractmethod
    def sizes(self, paths: list[Path]) -> dict[str, int]:
        """The users in all files of one split and their numbers of samples, at least 1; empty: there are no users.

        Raises:
            InputError: the files are malformed.
        """

    @abstractmethod
    def pieces(self, path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
        """The samples of each user of one file, in one or several pieces: name, n > 0 samples, and their labels.

        Raises:
            InputError: the file is malformed.
        """

    def described(self, name: str) -> str:
        """A user in messages."""
        return f"user {name!r}"


class LeafJson(FileFormat):
    """LEAF's JSON, streamed. A user may be in one file of a split only."""

    suffix: ClassVar[str] = ".json"

    def sizes(self, paths: list[Path]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for path in paths:
            for name, size in _listed(path).items():
                if name in sizes:
                    raise InputError(f"{path}: user {name!r} is also in another file of {path.parent}")
                sizes[name] = size
        return sizes

    def pieces(self, path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
        import ijson

        unread = _listed(path)
        listed = set(unread)
        with _reading(path) as file:
            for name, data in ijson.kvitems(file, "user_data", use_float=True):
                x, y = _samples(path, name, data)
                if name not in listed:
                    if not y:
                        continue  # LEAF's split by sample writes such entries for users with a single sample
                    raise InputError(f"{path}: user_data has user {name!r}, who is not in users")
                if name not in unread:
                    raise InputError(f"{path}: user_data has user {name!r} twice")
                size = unread.pop(name)
                if len(y) != size:
                    raise InputError(f"{path}: user {name!r} has {len(y)} samples, but num_samples says {size}")
                yield name, x, y
        if unread:
            raise InputError(f"{path}: user {next(iter(unread))!r} has no data in user_data")


@config_class
class LeafDataset(DatasetConfig):
    """Base class of LEAF's datasets.

    The users of a split are ordered by their number of samples and then by name: ascending in training, descending in
    the test split. So the order does not depend on which file a user is in, and for every ``min_samples`` the
    remaining users are one contiguous part of the cache, which is used without a copy.

    Attributes:
        data_dir: folder in which ``<name>/train`` and ``<name>/test`` hold the files, all of one of the formats in
            :meth:`sources`. Without ``test`` all users are training users; without both, the files are read from
            ``<name>/all_data``. A user may be in both splits (LEAF's split by sample).
        cache_dir: folder for the compact copy of the data, which the first run makes; None:
            ``<data_dir>/<name>/.fedrun-cache``.
        min_samples: users with fewer samples in ``train`` or ``test`` are dropped from it before any further split
            (LEAF's ``-k``).
        min_samples_after_split: a partition by user drops users with fewer samples after its split (64, for CelebA 8 in
            TurboSVM-FL's code).
    """

    data_dir: str
    cache_dir: str | None
    min_samples: Annotated[int, Ge(1)]
    min_samples_after_split: Annotated[int, Ge(1)]

    name: ClassVar[str]
    class_names: ClassVar[tuple[str, ...]]
    stored_type: ClassVar[StoredType] = "uint8"

    @property
    @abstractmethod
    def encoding(self) -> Encoding:
        """Turns stored samples into network inputs."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """A sample's shape in the cache."""
        return self.spec.input_shape

    @abstractmethod
    def sources(self) -> tuple[FileFormat, ...]:
        """The formats that the files may have."""

    @property
    def folder(self) -> Path:
        """The folder of ``train`` and ``test``."""
        return user_path(self.data_dir, "dataset.data_dir") / self.name

    def load(self) -> Dataset:
        """Map the cache, after making it from the source files if they have none yet.

        Raises:
            InputError: files are missing, malformed or contradictory; the cache is damaged or cannot be
                written; no user has ``min_samples`` samples.
        """
        source, files = self._source()
        key = cache_key(source.decoder.cache_tag, [path for paths in files.values() for path in paths])
        cached = cache_place(self.folder, self.cache_dir, self.name) / key
        create(cached, lambda folder: self._read(source, files, key, folder))
        return self._dataset(open_cache(cached))

    def _source(self) -> tuple[FileFormat, dict[str, list[Path]]]:
        """The format of the files, and the files of each existing split, sorted by name."""
        folders = {split: self.folder / split for split in SPLITS if os.path.isdir(self.folder / split)}
        if not folders and os.path.isdir(self.folder / UNSPLIT):
            folders = {"train": self.folder / UNSPLIT}
        if "train" not in folders:
            raise InputError(f"{self.folder / 'train'}: no such folder, or it cannot be read; {self._remedy()}")
        formats = {source.suffix: source for source in self.sources()}
        files = {
            split: sorted(path for path in folder.iterdir() if path.suffix.lower() in formats and path.name[0] != ".")
            for split, folder in folders.items()
        }
        for split, paths in files.items():
            if not paths:
                raise InputError(f"{folders[split]} has no {' or '.join(formats)} files: {self._remedy()}")
        suffixes = sorted({path.suffix.lower() for paths in files.values() for path in paths})
        if len(suffixes) > 1:
            raise InputError(f"{self.folder} has {' and '.join(suffixes)} files; allowed: files of one format")
        return formats[suffixes[0]], files

    def _remedy(self) -> str:
        return (
            f"run `fedrun-data {self.name} --data-dir {self.data_dir}`, or `git clone "
            f"https://github.com/TalwalkarLab/leaf && cd leaf/data/{self.name} && ./preprocess.sh "
            "-s niid --sf 1.0 -k 0 -t user --tf 0.9 --smplseed 0 --spltseed 0`, "
            f"then copy leaf/data/{self.name}/data/train and data/test into {self.folder}"
        )

    def _read(self, source: FileFormat, files: Mapping[str, list[Path]], key: str, folder: Path) -> None:
        """Read all source files into a new cache."""
        sizes: dict[str, dict[str, int]] = {}
        for split, paths in files.items():
            sizes[split] = source.sizes(paths)
            if not sizes[split]:
                raise InputError(f"the files in {paths[0].parent} have no users")
        index = ordered(sizes["train"], sizes.get("test", {}), self.stored_shape, self.stored_type)
        number = {
            split: {name: first + u for u, name in enumerate(names)}
            for split, first, names in (
                ("train", 0, index.names[: index.training]),
                ("test", index.training, index.names[index.training :]),
            )
        }

        def pieces() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
            for split, paths in files.items():
                for count, path in enumerate(paths, start=1):
                    log.info("%s: reading %s (file %d of %d, once)", self.name, path, count, len(paths))
                    for name, x, y in source.pieces(path):
                        try:
                            inputs, targets = source.decoder.decode(x, y)
                        except InputError as error:
                            raise InputError(f"{path}: {source.described(name)}: {error}") from error
                        if name not in number[split]:
                            raise InputError(f"{path}: user {name!r} was added while the file was read; run again")
                        yield number[split][name], inputs, targets

        write_cache(folder, index, pieces())
        if cache_key(source.decoder.cache_tag, [path for paths in files.values() for path in paths]) != key:
            raise InputError(f"the files in {self.folder} changed while they were read; run again")
        if remark := source.decoder.remark():
            log.warning("%s: %s", self.name, remark)

    def _dataset(self, cached: Cached) -> Dataset:
        """The dataset of the users that have enough samples."""
        index = cached.index
        first = bisect_left(index.sizes, self.min_samples, hi=index.training)
        end = bisect_right(index.sizes, -self.min_samples, lo=index.training, key=lambda size: -size)
        training, test = index.training - first, end - index.training
        for split, kept, present in (
            ("training", training, index.training),
            ("test", test, len(index.names) - index.training),
        ):
            if present and not kept:
                raise InputError(f"dataset.min_samples={self.min_samples} leaves no {split} user of {self.folder}")
            log.info(
                "%s: %d %s users of %d, those with at least dataset.min_samples=%d samples",
                self.name, kept, split, present, self.min_samples,
            )  # fmt: skip
        offsets = torch.from_numpy(index.offsets[first : end + 1])
        begin, stop = int(offsets[0]), int(offsets[-1])
        offsets = offsets - begin
        return Dataset(
            spec=self.spec,
            encoding=self.encoding,
            inputs=cached.inputs[begin:stop],
            targets=cached.targets[begin:stop],
            train_size=int(offsets[training]),
            users=Users(index.names[first:end], offsets, training, self.min_samples_after_split),
            class_names=self.class_names,
            fingerprint=fingerprint([cached.fingerprint, first, end]),
        )


def ordered(
    train: Mapping[str, int], test: Mapping[str, int], shape: tuple[int, ...], numbers: StoredType = "uint8"
) -> Index:
    """The order of the users in the cache, see :class:`LeafDataset`, from their numbers of samples."""
    users = sorted(train.items(), key=lambda user: (user[1], user[0]))
    users += sorted(test.items(), key=lambda user: (-user[1], user[0]))
    return Index(
        names=tuple(name for name, _ in users),
        sizes=tuple(size for _, size in users),
        training=len(train),
        shape=shape,
        dtype=numbers,
    )


def integer_labels(y: list[Any], classes: int) -> np.ndarray:
    """Labels as uint8 ``[n]``.

    Raises:
        InputError: a label is not an integer in ``0 .. classes - 1``.
    """
    for sample, label in enumerate(y):
        if type(label) is not int or not 0 <= label < classes:
            raise InputError(
                f"sample {sample} has label {reprlib.repr(label)}; labels are integers from 0 to {classes - 1}"
            )
    return np.array(y, dtype=np.uint8)


def _listed(path: Path) -> dict[str, int]:
    """``users`` and ``num_samples`` of one file; LEAF writes them first, so little of the file is read."""
    import ijson

    lists: dict[str, list[Any]] = {}
    for key, kind, allowed in (("users", str, "a list of names"), ("num_samples", int, "a list of integers")):
        with _reading(path) as file:
            entries = next(ijson.items(file, key, use_float=True), None)
        if not isinstance(entries, list) or not all(type(entry) is kind for entry in entries):
            raise InputError(f"{path}: {key} must be {allowed}")
        lists[key] = entries
    users, sizes = lists["users"], lists["num_samples"]
    if len(users) != len(sizes):
        raise InputError(f"{path}: {len(users)} users, but num_samples has {len(sizes)} entries")
    listed: dict[str, int] = {}
    for name, size in zip(users, sizes, strict=True):
        if name in listed:
            raise InputError(f"{path}: user {name!r} is twice in users")
        if size < 1:
            raise InputError(f"{path}: user {name!r} has {size} samples; a user has at least one")
        listed[name] = size
    return listed


def _samples(path: Path, name: str, data: object) -> tuple[list[Any], list[Any]]:
    """The lists x and y of one entry of ``user_data``."""
    x, y = (data.get("x"), data.get("y")) if isinstance(data, dict) else (None, None)
    if not isinstance(x, list) or not isinstance(y, list):
        raise InputError(f"{path}: user {name!r} must have two lists, x and y")
    if len(x) != len(y):
        raise InputError(f"{path}: user {name!r} has {len(x)} samples but {len(y)} labels")
    return x, y


@contextmanager
def _reading(path: Path) -> Iterator[BoundedNesting]:
    """Open a file; an error of the file system or of the JSON parser becomes one line that names the file."""
    import ijson

    try:
        with open(path, "rb") as file:
            yield BoundedNesting(file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except NestingError as error:
        raise InputError(f"{path}: {error}") from error
    except (ijson.JSONError, UnicodeDecodeError) as error:
        text = str(error)
        if "premature EOF" in text or "Incomplete" in text:
            raise InputError(f"{path} is cut short: it ends in the middle of the JSON text") from error
        reason = re.search(r"error: ([^\n\\]+)", text)
        raise InputError(
            f"{path} is not valid JSON in UTF-8: {reason[1] if reason else text.splitlines()[0]}"
        ) from error
