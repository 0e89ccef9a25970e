"""Unpacking of zip and tar archives; nothing is written outside the target folder."""

from __future__ import annotations

import errno
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO

from fedrun.system.errors import InputError

DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    RuntimeError,
    NotImplementedError,
)
"""What Python's modules raise for a damaged archive; NotImplementedError for a method of compression they lack."""

Member = tuple[str, int, IO[bytes]]
"""A file's name in the archive, its size in bytes, its content."""


def unpack(archive: Path, folder: Path, prefix: str) -> list[PurePosixPath]:
    """Unpack the files of a zip or tar archive (compressed or not).

    Args:
        archive: the archive.
        folder: the target, which does not exist yet. After an error it does not exist either.
        prefix: only files whose names begin with this text; it is removed from the names up to its last ``/``.

    Returns:
        The files' names below ``folder``.

    Raises:
        InputError: the archive is damaged, has no such files, has a file twice, or has a name or link that leads out of
            the folder.
        OSError: the folder cannot be written or has too little space.
    """
    folder.mkdir(parents=True)
    try:
        files = _unpack_members(archive, folder, prefix)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return files


def _unpack_members(archive: Path, folder: Path, prefix: str) -> list[PurePosixPath]:
    files: dict[PurePosixPath, None] = {}
    with closing(_members(archive)) as members:
        try:
            for name, size, content in members:
                if not name.startswith(prefix):
                    continue
                relative = PurePosixPath(name.removeprefix(prefix[: prefix.rfind("/") + 1]))
                if size > shutil.disk_usage(folder).free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                target = folder / relative
                if target.exists() or not _made_parent(target):
                    raise InputError(f"{archive} has {name!r} twice; nothing of this archive is used")
                with open(target, "wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                if target.stat().st_size != size:
                    raise InputError(f"{archive} is damaged: {name!r} is cut short")
                files[relative] = None
        except DAMAGED as error:
            raise InputError(f"{archive} is damaged: {' '.join(str(error).split())}") from error
    if not files:
        raise InputError(f"{archive} has no files{f' below {prefix}' if prefix else ''}")
    return list(files)


def _made_parent(target: Path) -> bool:
    """Create the folder of a file; False if a file has its name."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        return False
    return True


def _members(archive: Path) -> Generator[Member, None, None]:
    """The files of an archive, one after another.

    All names in a zip archive are checked before its first file is returned. A tar archive has no list of names: each
    is checked before its own file.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for entry in file.infolist():
                kind = stat.S_IFMT(entry.external_attr >> 16)
                _check(archive, entry.filename, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            for entry in file.infolist():
                if not entry.is_dir():
                    with file.open(entry) as content:
                        yield entry.filename, entry.file_size, content
        return
    if not tarfile.is_tarfile(archive):
        raise InputError(f"{archive} is not a zip or tar archive")
    with tarfile.open(archive) as tar:
        for member in tar:
            _check(archive, member.name, plain=member.isfile() or member.isdir())
            member_file = tar.extractfile(member) if member.isfile() else None
            if member_file is not None:
                with member_file:
                    yield member.name.removeprefix("./"), member.size, member_file
        while tar.fileobj is not None and tar.fileobj.read(1 << 20):
            pass  # to the end, where compressed files have their checksum


def _check(archive: Path, name: str, plain: bool) -> None:
    """Reject a member that is not a plain file or folder below the archive's top."""
    path = PurePosixPath(name)
    if not plain:
        raise InputError(f"{archive}: {name!r} is a link or a device; nothing of this archive is used")
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise InputError(f"{archive}: {name!r} leads out of its folder; nothing of this archive is used")
