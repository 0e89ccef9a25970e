"""Unpacking of zip and tar archives; nothing is written outside the target folder."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

from fedrun.system.errors import InputError, one_line

FAULTS = (None, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)
"""Errors of the operating system that are the archive's; others are the disk's. bz2 raises some without a number."""


def unpack(archive: Path, folder: Path, prefix: str) -> dict[Path, Path]:
    """Unpack the files of a zip or tar archive (compressed or not).

    Args:
        archive: the archive.
        folder: the target, which does not exist yet. After an error it does not exist either.
        prefix: only files whose names begin with this text.

    Returns:
        Each file by its name in the archive, without the prefix up to its last ``/``.

    Raises:
        InputError: the archive is damaged, has no such files, or has a link, or a name that leads out of the folder.
        OSError: the folder cannot be written or has too little space.
    """
    folder.mkdir(parents=True)
    try:
        _extract(archive, folder, prefix)
        top = folder / prefix.rpartition("/")[0]
        files = {path.relative_to(top): path for path in sorted(top.rglob("*")) if path.is_file()}
        if not files:
            raise InputError(f"{archive} has no files{f' below {prefix}' if prefix else ''}")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return files


def _extract(archive: Path, folder: Path, prefix: str) -> None:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                members = [entry for entry in file.infolist() if entry.filename.startswith(prefix)]
                _require_space(folder, sum(entry.file_size for entry in members))
                file.extractall(folder, members)  # "/" and ".." are removed from names, and links become files
        elif not tarfile.is_tarfile(archive):
            raise InputError(f"{archive} is not a zip or tar archive")
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter=lambda member, to: _wanted(member, to, prefix))
                while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                    pass  # to the end, where compressed files have their checksum
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a damaged archive can fail in any way
        if isinstance(error, OSError) and error.errno not in FAULTS:
            raise
        reason = one_line(str(error)) or type(error).__name__
        raise InputError(f"{archive} cannot be unpacked: {reason}; nothing of this archive is used") from error


def _wanted(member: tarfile.TarInfo, folder: str, prefix: str) -> tarfile.TarInfo | None:
    """A member of a tar archive, if its name begins with the prefix; links and devices are rejected."""
    if not (member.isfile() or member.isdir()):
        raise tarfile.SpecialFileError(member)
    if not member.name.removeprefix("./").startswith(prefix):
        return None
    _require_space(Path(folder), member.size)
    return tarfile.data_filter(member, folder)


def _require_space(folder: Path, size: int) -> None:
    if size > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
