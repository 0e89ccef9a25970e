"""Bring a dataset's files into ``data_dir``."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrun.data.datasets.cache import locked
from fedrun.data.download.catalogue import DatasetFiles, RemoteFile, parquet_target
from fedrun.data.download.http_file import Progress, UnreachableError, download, verified
from fedrun.data.download.unpack import unpack
from fedrun.system.atomic_file import atomic_write
from fedrun.system.errors import InputError

logger = logging.getLogger(__name__)

ASIDE = ".fedrun-downloads"
"""Folder below ``data_dir`` for what is not whole yet, and for the checksums of what was fetched."""

PLACING = "placing"
"""File there while a dataset's files are put in place."""

Reporter = Callable[[str], Progress]
"""Gives each file, by its name, something to report its progress to."""


def download_dataset(name: str, entry: DatasetFiles, data_dir: Path, base: str | None, report: Reporter) -> None:
    """RemoteFile what an entry lacks; files that are in place already are left alone.

    Files are put in place when all are there: a loader would read some of them as if they were the dataset.

    Args:
        name: the entry's name.
        entry: what to fetch.
        data_dir: folder in which datasets lie.
        base: another base address than the publisher's, or None.
        report: shows progress.

    Raises:
        InputError: it cannot be fetched; the line says which files to put where by hand.
    """
    aside = data_dir / ASIDE / name
    with _alone(aside):
        try:
            lacking = [
                item
                for item in entry.downloads(base)
                if item.unpack is not None or not (data_dir / item.target).exists()
            ]
            for item in lacking:
                if not (aside / item.file).exists():
                    _download(item, aside / item.file, data_dir, report(item.file))
        except UnreachableError as error:
            raise InputError(f"{error}; {manual_steps(name, entry, data_dir)}") from error
        (aside / PLACING).touch()
        for item in lacking:
            _place(aside / item.file, item, data_dir, aside)
        shutil.rmtree(aside, ignore_errors=True)
    _check_complete(name, entry, data_dir)


def interrupted(name: str, data_dir: Path) -> bool:
    """Whether a command was interrupted while it put a dataset's files in place, so that some may be missing."""
    return (data_dir / ASIDE / name / PLACING).exists()


def import_dataset(name: str, entry: DatasetFiles, data_dir: Path, source: Path, base: str | None) -> None:
    """Take an entry's files from a folder that has them, as published or as they lie below ``data_dir``, or from the
    published archive itself. The source is only read.

    Raises:
        InputError: the source does not have the files, or they have the wrong checksum.
    """
    aside = data_dir / ASIDE / name
    with _alone(aside):
        copies: list[tuple[Path, Path]] = []
        published: list[tuple[Path, RemoteFile]] = []
        if source.is_dir() and not entry.missing(source):
            copies = [(path, data_dir / path.relative_to(source)) for path in entry.files(source)]
        elif tables := sorted(source.glob("*.parquet")) if source.is_dir() else []:
            copies = [(path, data_dir / parquet_target(name, path.name)) for path in tables]
        else:
            try:
                published = [
                    (source if source.is_file() else source / each.file, each) for each in entry.downloads(base)
                ]
            except UnreachableError:  # only the hub knows the names
                raise InputError(f"{source} has no files of {name}; {manual_steps(name, entry, data_dir)}") from None
        for path, item in published:
            if not path.is_file():
                raise InputError(f"{source} lacks {item.file}; {manual_steps(name, entry, data_dir)}")
            try:
                verified(path, item.checksum)
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
        (aside / PLACING).touch()
        for path, target in copies:
            _copy(path, target, aside)
        for path, item in published:
            _place(path, item, data_dir, aside)
        shutil.rmtree(aside, ignore_errors=True)
    _check_complete(name, entry, data_dir)


def manual_steps(name: str, entry: DatasetFiles, data_dir: Path) -> str:
    """Which files to put where, without a connection."""
    return (
        f"without a connection, put the files {', '.join(str(data_dir / pattern) for pattern in entry.required)} there "
        f"yourself, or run fedrun-data {name} --from FOLDER, a folder that has them as published or in that layout"
    )


def _download(item: RemoteFile, path: Path, data_dir: Path, progress: Progress) -> None:
    """Try a file's addresses in turn; compare with, or add to, the recorded checksums."""
    record_path = data_dir / ASIDE / "checksums.json"
    try:
        record = json.loads(record_path.read_bytes()) if record_path.exists() else {}
    except ValueError as error:
        raise InputError(f"{record_path} is damaged: delete it and run again") from error
    key = f"{item.target}/{item.file}" if item.unpack is not None else item.target
    for number, url in enumerate(item.urls, start=1):
        try:
            record[key] = download(url, path, item.checksum or record.get(key), progress)
            break
        except UnreachableError as error:
            if number == len(item.urls):
                raise
            logger.warning("%s; trying %s", error, item.urls[number])
    with atomic_write(record_path, secrets.token_hex(4)) as file:
        file.write(json.dumps(record, indent=1).encode())


def _place(got: Path, item: RemoteFile, data_dir: Path, aside: Path) -> None:
    """Put a whole file, or an archive's members, under the final names; the archive goes when that is done."""
    if item.unpack is None:
        _copy(got, data_dir / item.target, aside)
    else:
        folder = aside / "unpacked"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for relative in unpack(got, folder, item.unpack):
            target = data_dir / item.target / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / relative, target)


def _copy(source: Path, target: Path, aside: Path) -> None:
    """Copy by way of a partial file; a file that was fetched aside is moved instead."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.parent == aside:
        os.replace(source, target)
        return
    partial = aside / f"{secrets.token_hex(4)}.partial"
    shutil.copyfile(source, partial)
    os.replace(partial, target)


def _check_complete(name: str, entry: DatasetFiles, data_dir: Path) -> None:
    if missing := entry.missing(data_dir):
        raise InputError(f"{name}: still missing below {data_dir}: {', '.join(missing)}")
    logger.info("%s is in %s", name, data_dir)


@contextmanager
def _alone(aside: Path) -> Iterator[None]:
    """One process at a time brings files into a ``data_dir``; errors of the file system become one line."""
    try:
        aside.parent.mkdir(parents=True, exist_ok=True)
        with locked(aside.parent):
            aside.mkdir(exist_ok=True)
            yield
    except OSError as error:
        raise InputError(f"{error.filename or aside} cannot be used: {error.strerror}") from error
