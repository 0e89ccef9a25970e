"""The identity of a run: the hash of every value that can change its result.

A run's folder has this hash in its name, and is also used by later versions of fedrun. So the hash must stay the same
when fedrun gets a new key, as long as a run does not use the key:

* A key that is added later is annotated with its neutral value, ``Annotated[float, Ge(0), Neutral(0.0)]``: the value
  with which results are the same as before the key was added (off, none, as before). A neutral value is left out of
  the hash. It never changes, even if the default in ``conf/`` does.
* Keys without a neutral value are always part of the hash, so that a changed default gives another folder.
* A key that changes results by rounding only counts with the same value in every run (:class:`RoundingOnly`).
* Classes of fedrun count by their bare name, so that a module can move. Other classes count by their full name.
* Keys that cannot change a result (:data:`IRRELEVANT`, :data:`CACHING`) are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrun.config.as_config import Plain, arguments
from fedrun.config.marks import marks
from fedrun.config.own_methods import is_fedruns

IRRELEVANT = frozenset(
    {"hardware", "tracking", "display", "output_dir", "overwrite", "checkpoint_seconds", "seed", "name", "scale"}
)
"""Top-level keys that cannot change a result (hardware, beyond rounding), or that name the run's folder themselves."""

CACHING = frozenset({"cache_dir", "download"})
"""Keys, at the top level and below ``dataset``, that say how data are obtained, not which data."""

DATASET = "dataset"

COUNT_OR_SHARE = "_per_round"
"""The end of keys whose whole numbers count clients or classes, and whose other numbers are shares of them."""


@dataclass(frozen=True)
class Neutral:
    """Marks the value of a key with which results are the same as without the key.

    Attributes:
        value: a scalar; or a config class, for its object with neutral values only.
    """

    value: Any


@dataclass(frozen=True)
class RoundingOnly:
    """Marks a key that changes results by rounding only.

    Attributes:
        unless: another key of the class; where it is true, the key can change a result.
        counted: the value that counts in the hash in place of any other.
    """

    unless: str
    counted: Any


def relevant(config: Mapping[str, Any]) -> Plain:
    """The part of a composed configuration that can change a result, without the seed."""
    kept = {key: value for key, value in config.items() if key not in IRRELEVANT | CACHING}
    return {key: _uncached(value) if key == DATASET else value for key, value in kept.items()}


def _uncached(node: Any) -> Any:
    if isinstance(node, Mapping):
        of_fedrun = str(node.get("_target_", "fedrun.")).startswith("fedrun.")  # a user's key may mean anything
        return {key: _uncached(value) for key, value in node.items() if not (of_fedrun and key in CACHING)}
    return [_uncached(item) for item in node] if isinstance(node, list) else node


def identity_hash(owner: type, settings: Mapping[str, Any]) -> str:
    """Eight hex digits that change with everything that can change a result, except the seed.

    Args:
        owner: the config class of the top-level keys.
        settings: their values, as objects.

    Raises:
        InputError: an object cannot be identified.
    """
    relevant_values = {
        key: identity(value, key)
        for key, value in settings.items()
        if key not in IRRELEVANT | CACHING and not _neutral(owner, key, value)
    }
    return hashlib.sha256(json.dumps(relevant_values, sort_keys=True).encode()).hexdigest()[:8]


def class_name(path: str) -> str:
    """The name by which a class counts, given its dotted path: of a class of fedrun the last part alone."""
    return path.rpartition(".")[2] if path.startswith("fedrun.") else path


def comparable(key: str, value: Any) -> Any:
    """A value as it is compared: 0 and 0.0 are equal, but not 1 and 1.0 of ``clients_per_round`` (one, and all).

    A class of fedrun is the same in another module.
    """
    if key.endswith("_target_") and isinstance(value, str):
        return class_name(value)
    whole = isinstance(value, float) and value.is_integer() and not key.endswith(COUNT_OR_SHARE)
    return int(value) if whole else value


def identity(value: Any, path: str) -> Any:
    """The parts of a value that can change a result, as plain values.

    Args:
        value: a config object, a scalar, or a tuple of them.
        path: its key, for messages.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [identity(item, path) for item in value]
    if isinstance(value, Mapping):
        return {str(key): identity(item, f"{path}.{key}") for key, item in value.items()}
    kind = type(value)
    cached = path.partition(".")[0] == DATASET and is_fedruns(kind)
    values = {
        key: identity(_counted(value, key, item), f"{path}.{key}")
        for key, item in arguments(value, path).items()
        if not (cached and key in CACHING) and not _neutral(kind, key, item)
    }
    return {"class": class_name(f"{kind.__module__}.{kind.__qualname__}"), **values}


def _neutral(owner: type, key: str, value: object) -> bool:
    """Whether a value of a class's key is neutral."""
    mark = neutral_value(owner, key)
    if mark is None:
        return False
    if isinstance(mark.value, type):
        return type(value) is mark.value and len(identity(value, key)) == 1
    return type(value) is type(mark.value) and bool(value == mark.value)


def is_neutral_class(owner: type, key: str, path: object) -> bool:
    """Whether the class at a dotted path is the neutral value of a class's key."""
    mark = neutral_value(owner, key)
    neutral = None if mark is None else mark.value
    return isinstance(neutral, type) and isinstance(path, str) and class_name(path) == neutral.__name__


def _counted(owner: Any, key: str, value: Any) -> Any:
    """The value of an object's key that counts in the hash."""
    kind: type = type(owner)
    mark = next((mark for mark in marks(kind).get(key, ()) if isinstance(mark, RoundingOnly)), None)
    return value if mark is None or getattr(owner, mark.unless) else mark.counted


def neutral_value(owner: type, key: str) -> Neutral | None:
    """The neutral value of a class's key; None if it has none."""
    return next((mark for mark in marks(owner).get(key, ()) if isinstance(mark, Neutral)), None)
