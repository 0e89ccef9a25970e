"""The methods of a user's class that extends one of fedrun's: fedrun must call each of them, and as it is defined."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, ClassVar, get_origin

from fedrun.system.errors import InputError

SIMILAR = 0.85
"""The similarity, from 0 to 1, above which a name that fedrun does not use is taken for a misspelt one."""


def check_methods(cls: type) -> None:
    """Reject a misspelt method or attribute, which would have no effect, and a method with other parameters than the
    base class's.

    Parameters may have other names, because fedrun passes them by position.

    Args:
        cls: a class, whose fields may have any name; fedrun's own are not checked.

    Raises:
        InputError: one line that names the method.
    """
    if is_fedruns(cls):
        return
    bases = [base for base in cls.__mro__[1:] if is_fedruns(base)]
    known = {name: value for base in reversed(bases) for name, value in vars(base).items() if not name.startswith("_")}
    fields = {name for name, annotation in inspect.get_annotations(cls).items() if not _of_class(annotation)}
    own = {name: value for name, value in vars(cls).items() if not name.startswith("_") and name not in fields}
    for name, value in own.items():
        where = f"{cls.__module__}.{cls.__qualname__}.{name}"
        if name not in known:
            if similar := get_close_matches(name, known.keys() - own.keys(), 1, SIMILAR):
                raise InputError(
                    f"{where}: fedrun does not use this name; did you mean {similar[0]}? If it is your own, call it "
                    f"_{name}"
                )
        elif inspect.isfunction(value) and inspect.isfunction(known[name]) and not _accepts(value, known[name]):
            raise InputError(f"{where}({_parameters(value)}): allowed: {name}({_parameters(known[name])})")


def is_fedruns(cls: type) -> bool:
    """Whether a class is part of fedrun, and not a user's."""
    return cls.__module__.partition(".")[0] == "fedrun"


def _of_class(annotation: object) -> bool:
    """Whether an annotation, or its source, is that of an attribute of a class, such as ``ClassVar[str]``: no field."""
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2].strip() == "ClassVar"
    return ClassVar in (annotation, get_origin(annotation))


def _accepts(method: Callable[..., Any], base: Callable[..., Any]) -> bool:
    """Whether a method can be called as the base class's is."""
    parameters = inspect.signature(base).parameters.values()
    by_name = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    by_position = [one.name for one in parameters if one.name not in by_name]
    try:
        inspect.signature(method).bind(*by_position, **dict.fromkeys(by_name))
    except TypeError:
        return False
    return True


def _parameters(method: Callable[..., Any]) -> str:
    return ", ".join(list(inspect.signature(method).parameters)[1:])
