"""The values that a field of a config class allows, in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from typing_extensions import TypeAliasType

from fedrun.system.errors import one_line

NAMES = {int: "an integer", float: "a finite number", str: "a string", bool: "true or false", NoneType: "null"}


LONGEST_VALUE = 300
"""The largest number of characters of a value in a message."""


def describe(annotation: Any) -> str:
    """The values that a type annotation allows, such as ``an integer, at least 1; or null``."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return "; or ".join(describe(choice) for choice in get_args(annotation))
    if origin is Annotated:
        base, *constraints = get_args(annotation)
        if get_origin(base) in (Union, UnionType):  # the bounds are those of the values that are not null
            choices = (choice if choice is NoneType else Annotated[choice, *constraints] for choice in get_args(base))
            return "; or ".join(map(describe, choices))
        bounds = " and ".join(filter(None, map(_bound, constraints)))
        return f"{describe(base)}, {bounds}" if bounds else describe(base)
    if origin is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if origin is tuple:
        first, *others = get_args(annotation)
        length = "" if others == [...] else f" of {1 + len(others)}"
        return f"a list{length}, each item {_each(first)}"
    if origin in (Mapping, dict):
        _, values = get_args(annotation)
        if values is Any:
            return "a mapping"
        in_words = " as in YAML" if isinstance(values, TypeAliasType) else f", each {_each(values)}"
        return f"a mapping from names to values{in_words}"
    if annotation in NAMES:
        return NAMES[annotation]
    if annotation.__module__.partition(".")[0] in ("builtins", "pathlib"):  # a mistake in a user's class
        return f"nothing, as fields cannot be a {annotation.__name__} (str and tuple[...] can)"
    return f"a mapping whose _target_ is a {annotation.__name__}"


def _each(annotation: Any) -> str:
    """The values that an item of a list, or an entry of a mapping, allows."""
    words = describe(annotation)
    return f"either {words.replace('; or ', ', or ')}" if "; or " in words else words


def _bound(constraint: Any) -> str:
    match constraint:
        case Ge(least):
            return f"at least {least}"
        case Gt(least):
            return f"above {least}"
        case Le(most):
            return f"at most {most}"
        case Lt(most):
            return f"below {most}"
        case MinLen(least):
            return f"at least {least} of them"
    return ""


def shown(value: Any) -> str:
    """A value as the user would write it in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(map(shown, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{shown(item)}" for key, item in value.items()) + "}"
    return str(value) or repr(value)  # '' for an empty string


def in_message(value: Any) -> str:
    """A value as the user would write it in YAML, in one line; the middle of a long value is left out."""
    return one_line(shown(value), LONGEST_VALUE)
