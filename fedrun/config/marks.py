"""The marks of a config class's keys: what their annotations say besides types and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import get_type_hints


@cache
def marks(owner: type) -> Mapping[str, tuple[object, ...]]:
    """What ``Annotated`` adds to the type of each key, by key."""
    hints = get_type_hints(owner, include_extras=True)
    return {key: getattr(annotation, "__metadata__", ()) for key, annotation in hints.items()}
