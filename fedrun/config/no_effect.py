"""Keys that have no effect beside the values of other keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from typing import get_type_hints

from fedrun.config.allowed_values import shown
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class NoEffect:
    """Marks a key of a config class that has no effect while another key of the class has one of some values. A key
    with several marks has none while all of them hold.

    Attributes:
        key: the other key.
        values: its values, scalars.
    """

    key: str
    values: tuple[object, ...]


def marks_of(owner: type, key: str) -> tuple[NoEffect, ...]:
    """The marks of a class's key."""
    annotation = get_type_hints(owner, include_extras=True).get(key)
    return tuple(mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, NoEffect))


def require_effects(config: object, overrides: Sequence[str]) -> None:
    """Reject overrides that have no effect.

    Args:
        config: the object whose fields are the top-level keys.
        overrides: such as ``local.beta1=0.5``.

    Raises:
        InputError: naming the key, and the values with which it has none.
    """
    for override in overrides:
        *above, key = override.lstrip("+").partition("=")[0].split(".")
        owner = config
        for name in above:
            owner = getattr(owner, name, None)
        if not is_dataclass(owner):  # a choice of an option below a group, or of another key's
            continue
        marks = marks_of(type(owner), key)
        if marks and all(getattr(owner, mark.key) in mark.values for mark in marks):
            keys = {".".join([*above, mark.key]): shown(getattr(owner, mark.key)) for mark in marks}
            raise InputError(
                f"{override}: has no effect with {' and '.join(f'{name}={value}' for name, value in keys.items())}; "
                f"leave it out, or change {' or '.join(keys)}"
            )
