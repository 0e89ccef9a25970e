"""Compose a configuration of plain containers from the same files as Hydra, in a fraction of its time.

Hydra creates several objects for every value. Without them a run starts sooner, and a report can compose hundreds of
jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrun.config.as_config import Plain
from fedrun.config.defaults_lists import DefaultsTree, NotPlainError
from fedrun.config.dotted_keys import NO_VALUE, value_at
from fedrun.config.options import listed, option_folders
from fedrun.config.overrides import OF_THE_SWEEP, parsed

REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
MISSING = "???"


@dataclass(frozen=True)
class PlainComposition:
    """A composed configuration.

    Attributes:
        config: the values, references resolved.
        sweeper: the values below ``hydra.sweeper``, references resolved in those of the sweep.
        sweeps: whether it describes a sweep: ``hydra.mode`` is ``MULTIRUN``.
        choices: the option of each of fedrun's groups.
    """

    config: Plain
    sweeper: Plain
    sweeps: bool
    choices: Mapping[str, Any]


def plain_composition(overrides: Sequence[str], folder: Path | None = None) -> PlainComposition:
    """Compose from fedrun's options and further ones.

    Args:
        overrides: as on the command line.
        folder: a folder of further options; None: there is none.

    Raises:
        NotPlainError: only Hydra can compose or reject it.
    """
    chosen, deleted, values = _arguments(overrides, option_folders(folder))
    tree = DefaultsTree(chosen, deleted, folder)
    merged: Plain = {}
    for part in tree.parts():
        merge(merged, part.embedded)
    for key, value in values:
        _set(merged, key, value)
    hydra = merged.pop("hydra")
    sweeper = {
        key: resolved(value, merged) if key in OF_THE_SWEEP else value for key, value in hydra["sweeper"].items()
    }
    return PlainComposition(resolved(merged, merged), sweeper, hydra.get("mode") == "MULTIRUN", tree.choices)


def merge(config: Plain, content: Mapping[str, Any]) -> None:
    """Update a configuration in place with further values; mappings are merged, everything else is replaced."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            below = config.get(key)
            if not isinstance(below, dict):
                below = config[key] = {}
            merge(below, value)
        else:
            config[key] = deepcopy(value)


def _arguments(
    overrides: Sequence[str], folders: Sequence[Path]
) -> tuple[dict[str, str], set[str], list[tuple[str, Any]]]:
    """The options that arguments choose, the groups that they leave out, and the keys that they set.

    Args:
        overrides: the arguments.
        folders: folders of options.
    """
    from hydra.errors import HydraException

    chosen: dict[str, str] = {}
    deleted: set[str] = set()
    values: list[tuple[str, Any]] = []
    for argument in overrides:
        try:
            override = parsed(argument)
        except HydraException:
            raise NotPlainError from None
        key, value = override.get_key_element(), override.value()
        is_group = bool(
            listed(override.key_or_group) or any((folder / override.key_or_group).is_dir() for folder in folders)
        ) and not isinstance(value, dict)
        if key.startswith(("hydra", "+")) or override.is_sweep_override():
            raise NotPlainError
        if is_group and key.startswith("~") and value is None:
            deleted.add(key[1:])
        elif is_group and isinstance(value, str) and not key.startswith("~"):
            chosen[key] = value
        elif not is_group and override.package is None and not key.startswith("~"):
            values.append((key, deepcopy(value)))
        else:
            raise NotPlainError
    return chosen, deleted, values


def _set(config: Plain, key: str, value: Any) -> None:
    """Set an existing key."""
    *above, last = key.split(".")
    node: Any = config
    for name in above:
        node = node.get(name) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        raise NotPlainError
    if not isinstance(value, dict):
        node[last] = value
        return
    if not isinstance(node[last], dict):
        raise NotPlainError
    for name, inner in value.items():
        _set(node[last], str(name), inner)


def resolved(node: Any, config: Plain, above: frozenset[str] = frozenset()) -> Any:
    """A copy of a part of the configuration with its references resolved.

    Args:
        node: the part.
        config: the whole.
        above: the keys whose values refer to this part.
    """
    if isinstance(node, dict):
        return {key: resolved(value, config, above) for key, value in node.items()}
    if isinstance(node, list):
        return [resolved(value, config, above) for value in node]
    if node == MISSING:
        raise NotPlainError
    if not isinstance(node, str) or "${" not in node:
        return node
    if whole := REFERENCE.fullmatch(node):
        return _value(whole[1], config, above)
    text = REFERENCE.sub(lambda reference: str(_value(reference[1], config, above)), node)
    if "${" in text or "\\" in node:
        raise NotPlainError
    return text


def _value(key: str, config: Plain, above: frozenset[str]) -> Any:
    """The value that a reference names; Hydra rejects one that refers to itself."""
    if key in above or (value := value_at(config, key, NO_VALUE)) is NO_VALUE:
        raise NotPlainError
    return resolved(value, config, above | {key})
