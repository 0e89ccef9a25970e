"""Archives, honest and hostile."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedrun.data.download.unpack import unpack
from fedrun.system.errors import InputError

FILES = {"top/a.txt": b"one", "top/deep/b.txt": b"two" * 1000, "c.txt": b"three"}


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("top/", b"")
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def found(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("make", [zipped, tarred])
def test_all_or_a_part(tmp_path: Path, target: Path, make: object) -> None:
    archive = make(tmp_path / "archive", FILES)  # type: ignore[operator]
    assert sorted(map(str, unpack(archive, target, ""))) == sorted(FILES)
    assert found(target) == FILES
    assert [*map(str, unpack(archive, tmp_path / "part", "top/deep/"))] == ["b.txt"]
    assert found(tmp_path / "part") == {"top/deep/b.txt": b"two" * 1000}


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/evil", "//evil", "C:evil", "top\\..\\..\\evil", ".."])
@pytest.mark.parametrize("make", [zipped, tarred])
def test_names_that_lead_elsewhere_write_nothing_there(tmp_path: Path, target: Path, make: object, name: str) -> None:
    """They are refused, or made names in the folder."""
    archive = make(tmp_path / "archive", {name: b"x"})  # type: ignore[operator]
    with suppress(InputError):
        assert all(path.is_relative_to(target) for path in unpack(archive, target, "").values())
    assert all(path.is_relative_to(target) or path == archive for path in tmp_path.rglob("*"))
    assert not Path("/evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_tar_are_refused(tmp_path: Path, target: Path, kind: bytes) -> None:
    """Also those that stay in the folder: a chain of them could lead out of it."""
    for where in ("/etc/passwd", "a"):
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
            member = tarfile.TarInfo("link")
            member.type, member.linkname = kind, where
            archive.addfile(member)
        with pytest.raises(InputError, match="a.tar cannot be unpacked: 'link' is a special file; nothing of this"):
            unpack(tmp_path / "a.tar", target, "")
        assert not target.exists()


def test_a_link_in_zip_becomes_a_file(tmp_path: Path, target: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        member = zipfile.ZipInfo("link")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    unpack(tmp_path / "a.zip", target, "")
    assert not (target / "link").is_symlink()
    assert (target / "link").read_text() == "/etc/passwd"


@pytest.mark.parametrize("make", [zipped, tarred])
def test_damaged_archives_are_refused(tmp_path: Path, target: Path, make: object) -> None:
    archive = make(tmp_path / "archive", {"a": bytes(range(256)) * 40})  # type: ignore[operator]
    content = bytearray(archive.read_bytes())
    for damage in (content[: len(content) // 2], content[:40] + b"\0\1\2\3" * 10 + content[80:], b"", b"text"):
        archive.write_bytes(damage)
        with pytest.raises(InputError, match=r"cannot be unpacked|is not a zip or tar archive$") as refusal:
            unpack(archive, target, "")
        assert "\n" not in str(refusal.value)


def test_too_little_memory_is_not_the_archives_fault(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def extractall(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(zipfile.ZipFile, "extractall", extractall)
    with pytest.raises(MemoryError):
        unpack(zipped(tmp_path / "archive", FILES), target, "")
    assert not target.exists()


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:bz2"])
def test_a_flipped_bit_in_a_tars_content(tmp_path: Path, target: Path, mode: str) -> None:
    """Also where the archive's end is found: the checksum is behind it."""
    archive = tarred(tmp_path / "archive", {"a": random.Random(0).randbytes(50_000)}, mode)
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    with pytest.raises(InputError, match="cannot be unpacked|is not a zip or tar archive"):
        unpack(archive, target, "")
    assert not target.exists()


def test_an_archive_without_the_wanted_files_is_refused(tmp_path: Path, target: Path) -> None:
    with pytest.raises(InputError, match="has no files below other/"):
        unpack(zipped(tmp_path / "archive", FILES), target, "other/")


@pytest.mark.parametrize("names", [["a", "a/b"], ["a/b", "a"]])
def test_a_file_that_is_also_a_folder_is_rejected_and_nothing_remains(
    tmp_path: Path, target: Path, names: list[str]
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(InputError, match="a.tar cannot be unpacked: .*; nothing of this archive is used"):
        unpack(tmp_path / "a.tar", target, "")
    assert not target.exists()


def test_too_little_space_for_the_last_file_leaves_nothing(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([1000, 1000])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=next(free)))
    with pytest.raises(OSError, match="No space left"):
        unpack(zipped(tmp_path / "a.zip", {"a": b"1", "b": bytes(2000)}), target, "")
    assert not target.exists()
