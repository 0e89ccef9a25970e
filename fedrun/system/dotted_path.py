"""Classes and functions, a user's own among them, by their dotted paths."""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from fedrun.system.errors import InputError


def imported(path: str, key: str, kind: str) -> Any:
    """The object at a dotted path.

    Args:
        path: such as ``mymodule.build``.
        key: key of the configuration, for messages.
        kind: what is allowed, for messages, such as ``a function``.

    Raises:
        InputError: there is no such object, or its module cannot be imported.
    """
    module, _, name = path.rpartition(".")
    if not (name and all(module.split("."))):
        example = "function" if "function" in kind else "Class"
        raise InputError(
            f"{key}={path}: has no module; allowed: the dotted path of {kind}, such as package.module.{example}"
        )
    try:
        return getattr(importlib.import_module(module), name)
    except InputError as error:  # of one of its config classes
        raise InputError(f"{key}={path}: {error}") from None
    except ModuleNotFoundError as error:
        raise InputError(
            f"{key}={path}: {error}; allowed: the dotted path of {kind}; a package of your own must be installed, or "
            "its folder in PYTHONPATH"
        ) from None
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{key}={path}: {error}; allowed: the dotted path of {kind}") from None
    except Exception as error:  # a user's module can raise anything
        raise InputError(f"{key}={path}: its module cannot be imported: {_described(error)}") from error


def function_at(path: str, key: str, arguments: Sequence[str], keywords: Mapping[str, Any]) -> Callable[..., Any]:
    """The function at a dotted path.

    Args:
        path: such as ``mymodule.build``.
        key: key of the configuration, for messages.
        arguments: the arguments with which it is called, in words.
        keywords: further arguments, by name.

    Raises:
        InputError: there is no such function, or it takes other arguments.
    """
    function = imported(path, key, "a function")
    if not (inspect.isroutine(function) or inspect.isclass(function) or isinstance(function, partial)):
        raise InputError(f"{key}={path}: of type {type(function).__name__}; allowed: the dotted path of a function")
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError as error:
        taken = ", ".join([*arguments, *keywords]) or "no argument"
        raise InputError(f"{key}={path}: {error}; allowed: a function that takes {taken}") from None
    except ValueError:  # one written in C
        pass
    return function


def called(path: str, key: str, arguments: Mapping[str, Any], keywords: Mapping[str, Any]) -> Any:
    """The result of the function at a dotted path.

    Args:
        path: such as ``mymodule.build``.
        key: key of the configuration, for messages.
        arguments: the arguments with which it is called, by their names in words.
        keywords: further arguments, by name.

    Raises:
        InputError: there is no such function, it takes other arguments, or it raises an error.
    """
    function = function_at(path, key, list(arguments), keywords)
    try:
        return function(*arguments.values(), **keywords)
    except InputError:
        raise
    except Exception as error:  # a user's function can raise anything
        raise InputError(f"{key}={path}: raises {_described(error, inspect.getmodule(function))}") from error


def _described(error: Exception, module: ModuleType | None = None) -> str:
    """An error and the last line that led to it, of a module if it has one there."""
    if isinstance(error, SyntaxError):  # names its line
        return f"{type(error).__name__}: {error}"
    lines = traceback.extract_tb(error.__traceback__)
    own = [line for line in lines if line.filename == getattr(module, "__file__", None)]  # builtins has no file
    last = (own or lines)[-1]
    return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
