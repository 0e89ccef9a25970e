"""The configuration that an object can be built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from fedrun.config.allowed_values import shown
from fedrun.system.errors import InputError

Plain = dict[str, Any]
"""A configuration as plain dicts, lists and scalars."""


def plain(node: Any) -> Any:
    """A configuration's node with dicts and lists instead of other mappings and sequences, such as OmegaConf's."""
    if isinstance(node, Mapping):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, (str, bytes)):
        return [plain(item) for item in node]
    return node


def arguments(value: object, path: str) -> Plain:
    """The constructor arguments of a config object, as objects.

    Arrays and tensors have their fingerprint instead. A class whose constructor takes values that are not in the
    configuration has a method ``as_config``, which returns plain values that identify the object.

    Args:
        value: the object.
        path: its key, for messages.

    Raises:
        InputError: the object's state is unknown, so it cannot be identified.
    """
    if hasattr(value, "as_config"):
        return dict(value.as_config())
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if not callable(value) and _without_arguments(value):
        return {}
    if (content := _fingerprint(value)) is not None:
        return {"content": content}
    raise InputError(
        f"{path}: {type(value).__name__} is neither a config class nor has a method as_config, so nothing identifies "
        "its values and a run's folder cannot be named; fedrun.Simulation needs no folder"
    )


def _without_arguments(value: object) -> bool:
    """Whether an object is described by its class alone: it has no attributes, and its class has no constructor.

    Objects of classes that are not written in Python have no dict of attributes.
    """
    classes = type(value).__mro__[:-1]
    return getattr(value, "__dict__", None) == {} and not any(
        {"__new__", "__init__"} & vars(one).keys() for one in classes
    )


def _fingerprint(value: object) -> str | None:
    """The fingerprint of an array's or a tensor's content; None for other objects."""
    import numpy as np
    import torch

    from fedrun.system.fingerprint import fingerprint

    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return fingerprint([value])
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return fingerprint([value])
    return None


def as_config(value: Any, path: str) -> Any:
    """The plain values from which :func:`fedrun.config.build.build` builds ``value``.

    Args:
        value: a config object, a scalar, or a tuple or a mapping of them.
        path: its key, for messages.

    Raises:
        InputError: an object cannot be identified.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [as_config(item, path) for item in value]
    if isinstance(value, Mapping):
        return {str(key): as_config(item, f"{path}.{key}") for key, item in value.items()}
    values = {name: as_config(item, f"{path}.{name}") for name, item in arguments(value, path).items()}
    return {"_target_": f"{type(value).__module__}.{type(value).__qualname__}", **values}


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """The keys whose values differ, with the later value as text, or the class name if the classes differ.

    A mapping without a class is one value.

    Args:
        before: a configuration as plain values.
        after: another one.
        path: the key of both, for the names of the keys.
    """
    changed: dict[str, str] = {}
    for key, value in after.items():
        where, earlier = f"{path}.{key}" if path else key, before.get(key)
        if isinstance(value, Mapping) and "_target_" in value:
            if isinstance(earlier, Mapping) and earlier.get("_target_") == value["_target_"]:
                changed |= differences(earlier, value, where)
            else:
                changed[where] = str(value["_target_"]).rpartition(".")[2]
        elif key not in before or value != earlier:
            changed[where] = shown(value)
    return changed
