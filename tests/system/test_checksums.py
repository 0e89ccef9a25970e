"""Checksums of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedrun.system.checksums import (
    DamagedFileError,
    checksum_line,
    damaged_files,
    missing_files,
    read_sealed,
    write_checksums,
    write_sealed,
)


def test_the_checksum_is_the_standards(tmp_path: Path) -> None:
    """CRC-32 of the nine digits, from the catalogue of CRCs."""
    with write_sealed(tmp_path / "file") as file:
        file.write(b"1234")
        file.write(b"56789")
    assert (tmp_path / "file").read_bytes() == b"123456789crc32 cbf43926\n"
    assert read_sealed(tmp_path / "file") == b"123456789"


def test_every_flipped_bit_and_every_cut_of_a_sealed_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with write_sealed(path) as file:
        file.write(b"\0content\0")
    whole = path.read_bytes()
    flipped = [whole[:n] + bytes([whole[n] ^ 1 << bit]) + whole[n + 1 :] for n in range(len(whole)) for bit in range(8)]
    for damage in [*flipped, *(whole[:length] for length in range(len(whole))), whole + b"\0"]:
        path.write_bytes(damage)
        with pytest.raises(DamagedFileError):
            read_sealed(path)


def test_the_checksums_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(b"123456789")
    (tmp_path / "below" / "b c").write_bytes(bytes(3_000_000))
    write_checksums(tmp_path, ["a", "below/b c"], [checksum_line("later", 0xCBF43926, 9)])
    listed = (tmp_path / "checksums.txt").read_text().splitlines()
    assert listed[0] == "cbf43926 9 a" and listed[2] == "cbf43926 9 later"
    assert (damaged_files(tmp_path), missing_files(tmp_path)) == ([], ["later"])
    (tmp_path / "later").write_bytes(b"123456780")
    assert damaged_files(tmp_path) == [tmp_path / "later"]
    with (tmp_path / "below" / "b c").open("r+b") as file:
        file.seek(2_500_000)
        file.write(b"\1")
    assert damaged_files(tmp_path) == [tmp_path / "below/b c", tmp_path / "later"]
    (tmp_path / "later").unlink()
    (tmp_path / "below" / "b c").write_bytes(bytes(2_999_999))
    assert damaged_files(tmp_path) == [tmp_path / "below/b c"]
    (tmp_path / "checksums.txt").write_bytes(b"")
    assert damaged_files(tmp_path) == [tmp_path / "checksums.txt"]
    (tmp_path / "checksums.txt").unlink()
    assert (damaged_files(tmp_path), missing_files(tmp_path)) == ([], [])
