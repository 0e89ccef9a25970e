import os

import pytest

from fedrun.system.atomic_file import atomic_write


def test_the_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "numbers.csv"
    path.write_bytes(b"old")
    with pytest.raises(error), atomic_write(path):
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    """/dev/full takes no byte; the file beside is written by way of a link to it."""
    path = tmp_path / "numbers.csv"
    path.write_bytes(b"old")
    (tmp_path / "numbers.csv.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"), atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"


def test_two_writers_do_not_meet(tmp_path, monkeypatch):
    path = tmp_path / "numbers.csv"
    with atomic_write(path, shared=True) as first:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with atomic_write(path, shared=True) as second:
            first.write(b"first")
            second.write(b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
