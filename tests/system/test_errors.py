"""Errors that may come from anywhere, in words."""

import errno
import os
from pathlib import Path

import pytest

from fedrun.config.allowed_values import in_message
from fedrun.system.errors import InputError, RunError, expected_error, one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain, ± and 模型", "plain, ± and 模型"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("two\u2028lines\x85", r"two\u2028lines\x85"),
        ("\udc80", r"\udc80"),
    ],
)
def test_a_message_is_one_line(text, line):
    assert str(InputError(text)) == str(RunError(text)) == one_line(text) == line


def test_of_a_long_message_the_middle_is_left_out():
    assert one_line("a" * 30 + "b" * 30, 25) == "aaaaaaaaaa ... bbbbbbbbbb"
    assert one_line("a" * 25, 25) == "a" * 25
    assert len(in_message("x\n" * 10_000)) <= 300
    assert len(str(InputError("x\n" * 10_000))) <= 4000


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG])
def test_a_file_that_cannot_be_reached(code):
    known = expected_error(OSError(code, os.strerror(code), "/there/it is"))
    assert isinstance(known, InputError)
    assert str(known) == f"/there/it is: {os.strerror(code)}; allowed: files and folders that can be read"


@pytest.mark.parametrize(
    ("error", "amount"),
    [
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 7.28 TiB for an array with shape (1,)"), " for 7.28 TiB at once"),
        (RuntimeError("Unable to allocate 437. TiB for an array"), " for 437 TiB at once"),
        (RuntimeError("can't allocate memory: you tried to allocate 800 bytes"), " for 800 bytes at once"),
    ],
)
def test_too_little_memory(error, amount):
    known = expected_error(error)
    assert isinstance(known, RunError)
    assert str(known).startswith(f"not enough memory{amount}: the data, the model, ")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk(code):
    known = expected_error(OSError(code, os.strerror(code), "/there/it is"))
    assert isinstance(known, RunError)
    assert str(known) == f"/there/it is: {os.strerror(code)}; make room, and repeat the command"


def test_a_user_without_a_home_folder():
    with pytest.raises(RuntimeError) as raised:
        Path("~nobody-of-this-name/x.csv").expanduser()
    known = str(expected_error(raised.value))
    assert known.startswith("a path begins with ~ and the name of a user without a home folder")


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("no"), OSError(errno.EIO, "broken", "a"), OSError()])
def test_other_errors_are_not_foreseen(error):
    assert expected_error(error) is None
