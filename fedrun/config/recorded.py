"""Recorded configurations, as today's classes read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrun.config.as_config import Plain
from fedrun.config.build import locate
from fedrun.config.identity import neutral_value
from fedrun.config.marks import marks
from fedrun.config.option_name import class_of, group_at, option_of
from fedrun.config.options import option_files


def current(node: Any, path: str) -> Any:
    """A part of a run's configuration with the classes where they are now, and with the keys that they have got since,
    whose neutral values (:class:`fedrun.config.identity.Neutral`) mean the same.

    Args:
        node: containers and scalars, as recorded.
        path: the node's key, such as ``model``.
    """
    if isinstance(node, list):
        return [current(item, path) for item in node]
    if not isinstance(node, Mapping) or "_target_" not in node:
        return node
    target = _place(group_at(path), str(node["_target_"]))
    keys = {key: current(value, f"{path}.{key}") for key, value in node.items()}
    return completed({**keys, "_target_": target}, locate(target, path))


def completed(node: Plain, owner: type) -> Plain:
    """The keys of a config class with neutral values for those that are missing and have one."""
    added = {key: neutral_value(owner, key) for key in marks(owner).keys() - node.keys()}
    values = {key: _as_node(mark.value) for key, mark in added.items() if mark is not None}
    return {**values, **node}


def _as_node(value: Any) -> Any:
    """A neutral value as it is recorded: of a class, its object with neutral values only."""
    if not isinstance(value, type):
        return value
    return completed({"_target_": f"{value.__module__}.{value.__qualname__}"}, value)


def _place(group: str, target: str) -> str:
    """The dotted path of a class today: that of the group's option with a class of this name."""
    name = option_of(group, target)
    path = option_files(group).get(name)
    return target if path is None else class_of(group, name, path)
