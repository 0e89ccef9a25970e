"""Dotted keys of nested mappings, such as ``local.lr``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NO_VALUE = object()
"""Stands for the value of a key that does not exist."""


def value_at(node: Any, key: str, default: Any = None) -> Any:
    """The value of a key; ``default`` if there is no such key."""
    for name in key.split("."):
        if not isinstance(node, Mapping) or name not in node:
            return default
        node = node[name]
    return node


def flattened(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of all values that are not mappings, with these values."""
    for name, value in node.items():
        key = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping):
            yield from flattened(value, key)
        else:
            yield key, value


def dotted(node: object, above: str = "") -> Iterator[str]:
    """All keys of a configuration with those above them: ``local`` and ``local.lr``."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            key = f"{above}.{name}" if above else str(name)
            if name != "_target_":
                yield key
                yield from dotted(value, key)
