"""The marks in the annotations of a config class's keys, in addition to types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_type_hints


@dataclass(frozen=True)
class NoEffect:
    """Marks a key of a config class that has no effect while another key of the class has one of some values. A key
    with several marks has none while any of them holds; those of a tuple of marks must hold together.

    Attributes:
        key: the other key.
        values: its values, scalars; None: all but null.
    """

    key: str
    values: tuple[object, ...] | None = None

    def holds(self, owner: object) -> bool:
        """Whether the other key of a config class's object has one of the values."""
        value = getattr(owner, self.key)
        return value is not None if self.values is None else value in self.values


@cache
def marks(owner: type) -> Mapping[str, tuple[object, ...]]:
    """What ``Annotated`` adds to the type of each key, by key."""
    hints = get_type_hints(owner, include_extras=True)
    return {key: getattr(annotation, "__metadata__", ()) for key, annotation in hints.items()}


def unused_with(owner: type, key: str) -> list[tuple[NoEffect, ...]]:
    """When a class's key has no effect: while all marks of one of these tuples hold."""
    joint = (mark if isinstance(mark, tuple) else (mark,) for mark in marks(owner).get(key, ()))
    return [together for together in joint if isinstance(together[0], NoEffect)]
