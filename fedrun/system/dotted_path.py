"""A user's own functions, by their dotted paths."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from fedrun.system.errors import InputError


def function_at(path: str, key: str) -> Callable[..., Any]:
    """The function at a dotted path.

    Args:
        path: such as ``mymodule.build``.
        key: of the configuration, for messages.

    Raises:
        InputError: there is no such function.
    """
    module, _, name = path.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{key}={path}: {error}; allowed: the dotted path of a function; its module must be installed, or its "
            "folder in PYTHONPATH"
        ) from None
    if not callable(function):
        raise InputError(f"{key}={path}: not a function; allowed: the dotted path of a function")
    return function  # type: ignore[no-any-return]
