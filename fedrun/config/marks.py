"""The marks in the annotations of a config class's keys, in addition to types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_type_hints


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


@cache
def marks(owner: type) -> Mapping[str, tuple[object, ...]]:
    """What ``Annotated`` adds to the type of each key, by key."""
    hints = get_type_hints(owner, include_extras=True)
    return {key: getattr(annotation, "__metadata__", ()) for key, annotation in hints.items()}


def unused_with(owner: type, key: str) -> tuple[NoEffect, ...]:
    """When a class's key has no effect."""
    return tuple(mark for mark in marks(owner).get(key, ()) if isinstance(mark, NoEffect))
