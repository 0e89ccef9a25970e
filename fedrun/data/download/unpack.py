"""Archives, unpacked without ever leaving the folder they are unpacked to."""

from __future__ import annotations

import errno
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

Member = tuple[str, int, IO[bytes]]
"""A file's name in the archive, its size, its content."""


def unpack(archive: Path, folder: Path, below: str) -> list[PurePosixPath]:
    """Unpack the files of a zip or tar archive (compressed or not).

    Args:
        archive: the archive.
        folder: where to.
        below: only files whose names begin with this text, which is left out of their new names up to its last ``/``.

    Returns:
        The files' names below ``folder``.

    Raises:
        InputError: the archive is damaged, has nothing of that name, or has a name or link that leads elsewhere.
        OSError: the folder cannot be written or has too little space.
    """
    written = []
    with closing(_members(archive)) as members:
        try:
            for name, size, content in members:
                if not name.startswith(below):
                    continue
                relative = PurePosixPath(name.removeprefix(below[: below.rfind("/") + 1]))
                if size > shutil.disk_usage(folder).free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                target = folder / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
                if target.stat().st_size != size:
                    raise InputError(f"{archive} is damaged: {name} is cut short")
                written.append(relative)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, RuntimeError, NotImplementedError) as error:
            raise InputError(f"{archive} is damaged: {' '.join(str(error).split())}") from error
    if not written:
        raise InputError(f"{archive} has no files{f' below {below}' if below else ''}")
    return written


def _members(archive: Path) -> Generator[Member, None, None]:
    """The files of an archive, one after another.

    A zip's names are all checked before the first file is given. A tar has no list of them: each is checked before its
    own file, when those before it have been given already.
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
            found = tar.extractfile(member) if member.isfile() else None
            if found is not None:
                with found:
                    yield member.name.removeprefix("./"), member.size, found


def _check(archive: Path, name: str, plain: bool) -> None:
    """Refuse a member that is no plain file or folder below the archive's own top."""
    path = PurePosixPath(name)
    if not plain:
        raise InputError(f"{archive}: {name!r} is a link or a device; nothing of this archive is used")
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise InputError(f"{archive}: {name!r} leads out of its folder; nothing of this archive is used")
