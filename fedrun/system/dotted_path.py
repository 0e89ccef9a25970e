"""Classes and functions, a user's own among them, by their dotted paths."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from fedrun.system.errors import InputError


def imported(path: str, key: str, kind: str) -> Any:
    """The object at a dotted path.

    Args:
        path: such as ``mymodule.build``.
        key: of the configuration, for messages.
        kind: what is allowed, for messages, such as ``a function``.

    Raises:
        InputError: there is no such object, or its module cannot be imported.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{key}={path}: {error}; allowed: the dotted path of {kind}; a package of your own must be installed, or "
            "its folder in PYTHONPATH"
        ) from None
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{key}={path}: {error}; allowed: the dotted path of {kind}") from None
    except Exception as error:  # a user's module can raise anything
        where = traceback.extract_tb(error.__traceback__)[-1]
        at = "" if isinstance(error, SyntaxError) else f" ({where.filename}, line {where.lineno})"
        raise InputError(f"{key}={path}: its module cannot be imported: {type(error).__name__}: {error}{at}") from error


def function_at(path: str, key: str, arguments: Sequence[str]) -> Callable[..., Any]:
    """The function at a dotted path.

    Args:
        path: such as ``mymodule.build``.
        key: of the configuration, for messages.
        arguments: with which it is called, in words.

    Raises:
        InputError: there is no such function, or it takes other arguments.
    """
    function = imported(path, key, "a function")
    if not callable(function):
        raise InputError(f"{key}={path}: not a function; allowed: the dotted path of a function")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        taken = ", ".join(arguments) or "no argument"
        raise InputError(f"{key}={path}: {error}; allowed: a function that takes {taken}") from None
    except ValueError:  # one written in C
        pass
    return function  # type: ignore[no-any-return]
