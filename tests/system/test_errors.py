"""Errors that may come from anywhere, in words."""

import errno
import os

import pytest

from fedrun.system.errors import InputError, RunError, foreseen


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP])
def test_a_file_that_cannot_be_reached(code):
    known = foreseen(OSError(code, os.strerror(code), "/there/it is"))
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
    known = foreseen(error)
    assert isinstance(known, RunError)
    assert str(known).startswith(f"not enough memory{amount}: the data, the model, ")


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("no"), OSError(errno.ENOSPC, "full", "a"), OSError()])
def test_other_errors_are_not_foreseen(error):
    assert foreseen(error) is None
