"""Install a dataset's files below ``data_dir``: downloaded, or copied from files that the user has."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedrun.data.download.catalogue import DatasetFiles, RemoteFile, parquet_target
from fedrun.data.download.http_file import FailedDownloadError, Progress, UnreachableError, download, verify
from fedrun.data.download.unpack import unpack
from fedrun.system.errors import InputError
from fedrun.system.folder_lock import waiting_lock

log = logging.getLogger(__name__)

STAGING = ".fedrun-downloads"
"""Folder below ``data_dir`` for incomplete downloads."""

PLACING = "placing"
"""File in the staging folder of a dataset while its files are moved to their final places."""

UNPACKED = "unpacked"
"""Folder in the staging folder of a dataset for the files of archives."""

Reporter = Callable[[str], Progress]
"""Called with a file's name; returns the function that receives its progress."""


def download_dataset(name: str, dataset: DatasetFiles, data_dir: Path, base: str | None, report: Reporter) -> None:
    """Download the missing files of a dataset.

    No file is put in its final place before all are complete: a loader would take some of them for the dataset.

    Args:
        name: the dataset's name.
        dataset: its files.
        data_dir: folder of the datasets.
        base: another base address than the publisher's, or None.
        report: shows progress.

    Raises:
        InputError: the download failed; the line says which files to put where without a connection.
    """
    with _staging(name, data_dir) as staging:
        if dataset.missing(data_dir) or interrupted(name, data_dir):  # otherwise another process was faster
            _fetch(name, dataset, staging, data_dir, base, report)
        shutil.rmtree(staging, ignore_errors=True)
    _check_complete(name, dataset, data_dir)


def interrupted(name: str, data_dir: Path) -> bool:
    """Whether a command was interrupted while it put a dataset's files in place, so that some may be missing."""
    return (data_dir / STAGING / name / PLACING).exists()


def import_dataset(name: str, dataset: DatasetFiles, data_dir: Path, source: Path, base: str | None) -> None:
    """Copy a dataset's files from a folder that has them, as published or in the layout of ``data_dir``, or unpack the
    published archive. The source is only read.

    Raises:
        InputError: the source does not have the files, or they have the wrong checksum.
    """
    with _staging(name, data_dir) as staging:
        copies: list[tuple[Path, Path]] = []
        published: list[tuple[Path, RemoteFile]] = []
        if source.is_dir() and not dataset.missing(source):
            copies = [(path, data_dir / path.relative_to(source)) for path in dataset.files(source)]
            for item in () if dataset.parquet else dataset.downloads(base):  # the hub states no checksums
                if item.unpack is None and (path := source / item.target).is_file():
                    _verify(path, item)
        elif dataset.parquet and (tables := sorted(source.glob("*.parquet"))):  # none in a file
            copies = [(path, data_dir / parquet_target(name, path.name)) for path in tables]
        else:
            try:
                remote = dataset.downloads(base)
            except UnreachableError:  # only the hub knows the names
                raise InputError(f"{source} has no files of {name}; {manual_steps(name, dataset, data_dir)}") from None
            published = [(source if source.is_file() else source / item.file, item) for item in remote]
        for path, item in published:
            if not path.is_file():
                raise InputError(f"{source} lacks {item.file}; {manual_steps(name, dataset, data_dir)}")
            _verify(path, item)
        for path, item in published:
            copies += _contents(path, item, data_dir, staging)
        _place(copies, staging)
        shutil.rmtree(staging, ignore_errors=True)
    _check_complete(name, dataset, data_dir)


def _verify(path: Path, item: RemoteFile) -> None:
    """Check a copy of a published file against the stated checksum, if there is one.

    Raises:
        InputError: it is wrong; the line names the copy.
    """
    try:
        if item.checksum is not None:
            verify(path, item.checksum)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def manual_steps(name: str, dataset: DatasetFiles, data_dir: Path) -> str:
    """Which files to put where, without a connection."""
    return (
        f"without a connection, put the files {', '.join(str(data_dir / pattern) for pattern in dataset.required)} "
        f"there yourself, or download what is published elsewhere and run fedrun-data {name} --data-dir {data_dir} "
        "--from FOLDER"
    )


def _fetch(name: str, dataset: DatasetFiles, staging: Path, data_dir: Path, base: str | None, report: Reporter) -> None:
    """Download the missing files, and then put them in their places."""
    try:
        missing = [
            item for item in dataset.downloads(base) if item.unpack is not None or not (data_dir / item.target).exists()
        ]
        for item in missing:
            if not (staging / item.file).exists():
                _download(item, staging / item.file, report(item.file))
    except UnreachableError as error:
        raise InputError(f"{error}; {manual_steps(name, dataset, data_dir)}") from error
    moves: list[tuple[Path, Path]] = []
    for item in missing:
        try:
            moves += _contents(staging / item.file, item, data_dir, staging)
        except InputError:  # the next command downloads it again
            (staging / item.file).unlink()
            raise
    _place(moves, staging)


def _download(item: RemoteFile, path: Path, progress: Progress) -> None:
    """Try a file's addresses in turn, until one has the right file."""
    for url, following in zip(item.urls, [*item.urls[1:], None], strict=True):
        try:
            return download(url, path, item.checksum, progress)
        except (UnreachableError, FailedDownloadError) as error:
            if following is None:
                raise
            reason = error.reason if isinstance(error, FailedDownloadError) else error
            log.warning("%s; trying %s", reason, following)
    return None


def _contents(path: Path, item: RemoteFile, data_dir: Path, staging: Path) -> list[tuple[Path, Path]]:
    """The files of a published file, which may be an archive, each with its final place."""
    if item.unpack is None:
        return [(path, data_dir / item.target)]
    folder = staging / UNPACKED / item.file
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted command
    return [(file, data_dir / item.target / name) for name, file in unpack(path, folder, item.unpack).items()]


def _place(files: list[tuple[Path, Path]], staging: Path) -> None:
    """Move or copy complete files to their final places."""
    (staging / PLACING).touch()
    for source, target in files:
        target.parent.mkdir(parents=True, exist_ok=True)
        if staging in source.parents:
            os.replace(source, target)
        else:
            partial = staging / f"{secrets.token_hex(4)}.partial"
            shutil.copyfile(source, partial)
            os.replace(partial, target)


def _check_complete(name: str, dataset: DatasetFiles, data_dir: Path) -> None:
    if missing := dataset.missing(data_dir):
        raise InputError(f"{name}: still missing below {data_dir}: {', '.join(missing)}")
    log.info("%s is in %s", name, data_dir)


@contextmanager
def _staging(name: str, data_dir: Path) -> Iterator[Path]:
    """The folder for a dataset's incomplete files, while other processes wait. On a file system without locks every
    process has a folder of its own, and an interrupted download begins again. After a download that failed at once new
    folders are removed: ``data_dir`` may be misspelt. Errors of the file system become one line.
    """
    top = data_dir / STAGING
    try:
        new = [folder for folder in (top, *top.parents) if not folder.exists()]
        top.mkdir(parents=True, exist_ok=True)
        with waiting_lock(top) as alone:
            staging = top / (name if alone else f"{name}-{secrets.token_hex(4)}")
            staging.mkdir(parents=True, exist_ok=True)  # the process waited for may have removed the folders above
            try:
                yield staging
            finally:
                if not alone:
                    shutil.rmtree(staging, ignore_errors=True)
                with suppress(OSError):  # not empty: the next command continues
                    for folder in (staging, *new):
                        folder.rmdir()
    except OSError as error:
        raise InputError(f"{error.filename or top} cannot be used: {error.strerror}") from error
