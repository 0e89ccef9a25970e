"""Python pickles of plain data and NumPy arrays, read without letting them run code.

A pickle is a program that may call any function it names. Here it may name only the parts of arrays.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedrun.system.errors import InputError

ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
"""Modules of NumPy's ``_reconstruct``, which makes an empty array, in old and new releases."""

RECONSTRUCT = np.empty(0).__reduce__()[0]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "numpy", "ndarray":
                return np.ndarray
            case "numpy", "dtype":
                return np.dtype
            case _, "_reconstruct" if module in ARRAY_MODULES:
                return RECONSTRUCT
            case "_codecs", "encode":  # how Python 3 writes bytes for Python 2
                return _latin1
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which plain data do not need")


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are written in {encoding} instead of latin1")
    return text.encode("latin1")


def read_pickle(path: Path) -> Any:
    """The object in a pickle of Python 2 or 3; texts of Python 2 are read as Latin-1.

    Raises:
        InputError: the file cannot be read, is damaged or needs anything except plain data and arrays.
    """
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} is not a pickle of plain data and arrays: {reason}") from error
