"""Build validated objects from composed configurations; errors are messages of one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any, get_args, get_origin, get_type_hints

from fedrun.config.allowed_values import describe, in_message, shown
from fedrun.config.as_config import Plain, as_config
from fedrun.config.config_class import ArgumentError, own_reason, wrong_part
from fedrun.config.defaults_lists import DefaultsTree, NotPlainError
from fedrun.config.dotted_keys import value_at
from fedrun.config.options import conf_dir, config_dir_option, content, option_files, options
from fedrun.config.overrides import needs_quotes
from fedrun.config.plain_composition import merge, resolved
from fedrun.config.suggestions import did_you_mean, no_such_option
from fedrun.system.dotted_path import imported
from fedrun.system.errors import InputError

LARGEST = 1e30
"""The largest number in a configuration: float32 ends at 3.4e38, and PyTorch rejects a factor beyond it."""

LARGEST_INTEGER = 10**12
"""The largest integer in a configuration, except seeds: PyTorch counts in 64 bits, and products must fit."""

SCALAR = ("int_type", "float_type", "string_type", "literal_error")
"""Pydantic's names of errors in values that are not a list."""


def option(group: str, name: str, /, **changes: Any) -> Any:
    """The config object of a single option, such as ``option("strategy/client", "fedprox", mu=0.1)``.

    The options in its defaults list are parts of it. References, such as ``${data_dir}``, have the values in
    ``config.yaml``.

    Raises:
        InputError: there is no such option, or the changes do not fit it.
    """
    files = option_files(group)
    if not files:
        raise InputError(f"{group}: no such group; fedrun --help shows all")
    if name not in files:
        raise InputError(no_such_option(group, name, files))
    return build({**_composed(group, name), **changes}, group.replace("/", "."))


def option_with(group: str, values: Plain) -> str | None:
    """The option of a group with these values; None: there is none.

    Args:
        group: such as ``strategy``.
        values: as :func:`fedrun.config.as_config.as_config` returns them.
    """
    for name in options(group):
        node = _composed(group, name)
        if _classes(node) == _classes(values) and as_config(build(node, group), group) == values:
            return name
    return None


def _classes(node: Mapping[str, Any]) -> dict[str, Any]:
    """The classes of the parts of a node, so that only options with the same ones are built."""
    return {key: part["_target_"] for key, part in node.items() if isinstance(part, Mapping) and "_target_" in part}


def _composed(group: str, name: str) -> Plain:
    """An option, with those that its defaults list names, on top of its group's node in ``config.yaml``, whose values
    its references have.

    Raises:
        InputError: only Hydra can compose it.
    """
    composed = content("", "config", conf_dir() / "config.yaml")
    try:
        for part in DefaultsTree({}, set(), config_dir_option()).parts_of(group, name):
            merge(composed, part.embedded)
        node: Plain = _without_references(value_at(composed, group.replace("/", ".")) or {}, composed)
    except NotPlainError:
        raise InputError(
            f"{group}={name}: cannot be built alone; allowed: fedrun.compose(['{group}={name}'])"
        ) from None
    return node


def _without_references(node: Any, config: Plain) -> Any:
    """A part of a configuration, which may lack values, with its references resolved."""
    if isinstance(node, Mapping):
        return {key: _without_references(value, config) for key, value in node.items()}
    return resolved(node, config) if isinstance(node, str) and "${" in node else node


def build(node: Any, path: str) -> Any:
    """The object of a config node: of the class in ``_target_``; sequences become tuples, scalars are unchanged.

    Args:
        node: containers, also OmegaConf's, and scalars.
        path: the node's key, for messages.
    """
    if isinstance(node, float) and isfinite(node) and abs(node) > LARGEST:
        raise InputError(f"{path}={shown(node)}: allowed: numbers up to {LARGEST:g}, as float32 ends at 3.4e38")
    if isinstance(node, int) and abs(node) > LARGEST_INTEGER and not path.endswith("seed"):
        raise InputError(f"{path}={node}: allowed: whole numbers up to {LARGEST_INTEGER:g}")
    if isinstance(node, str) and any("\ud800" <= character <= "\udfff" for character in node):  # bytes of the shell
        raise InputError(f"{path}={in_message(node)}: is not UTF-8; allowed: strings and paths in UTF-8")
    if isinstance(node, Sequence) and not isinstance(node, str):
        return tuple(build(item, f"{path}[{index}]") for index, item in enumerate(node))
    if not isinstance(node, Mapping):
        return node
    arguments = dict(node)
    target = arguments.pop("_target_", None)
    if target is None:
        raise InputError(
            f"{path}: has no _target_, so it does not say what to build; choose one of the group's options"
        )
    return construct(locate(target, path), arguments, path)


def locate(target: Any, path: str) -> type:
    """The class that ``_target_`` names."""
    located = imported(str(target), f"{path}._target_", "a config class")
    if not (isinstance(located, type) and is_dataclass(located)):
        raise InputError(
            f"{path}._target_={target}: not a config class; allowed: the dotted path of a class with @config_class"
        )
    if missing := sorted(getattr(located, "__abstractmethods__", ())):
        raise InputError(
            f"{path}._target_={target}: does not define {', '.join(missing)}; allowed: a class that defines "
            "every abstract method of its base class"
        )
    return located


def construct(
    config_class: type, arguments: Mapping[str, Any], path: str, given: Mapping[str, object] = MappingProxyType({})
) -> object:
    """A config object from its arguments, nested ones first; a validation error becomes one line.

    Args:
        config_class: the class.
        arguments: its keys in the configuration.
        path: the key of the object, for messages.
        given: constructor arguments that are not keys of the configuration, as objects.
    """
    annotations = get_type_hints(config_class, include_extras=True)
    names = [field.name for field in fields(config_class) if field.name not in given]
    for key in arguments:
        if key not in names:
            raise InputError(
                f"{_join(path, key)}: unknown key; allowed{path and f' below {path}'}: {', '.join(names) or 'nothing'}"
                f"{did_you_mean(_join(path, key), [_join(path, name) for name in names])}"
            )
    for name in names:
        if name not in arguments:
            raise InputError(
                f"{_join(path, name)}: is missing; allowed: {_allowed(annotations[name], _join(path, name))}"
            )
    built = {
        key: _plain(value) if _is_mapping(annotations[key]) else build(value, _join(path, key))
        for key, value in arguments.items()
    }
    try:
        return config_class(**built, **given)
    except ArgumentError as error:
        if error.owner is not config_class:
            raise
        first = error.problem
        if (reason := own_reason(first)) is not None:
            raise InputError(f"{path or config_class.__name__}: {reason}") from None
        key = str(first["loc"][0])
        where, value = _join(path, key), built[key]
        if first["type"] == "is_instance_of" and is_dataclass(value):
            base = first["ctx"]["class"]
            path_of_class = f"{type(value).__module__}.{type(value).__qualname__}"
            raise InputError(
                f"{where}._target_={path_of_class}: does not extend {base}; allowed: a class that extends {base}"
            ) from None
        value = wrong_part(value, first["loc"][1:])
        why = _likely_mistake(value, first, where)
        raise InputError(f"{where}={in_message(value)}: allowed: {_allowed(annotations[key], where)}{why}") from None


def _likely_mistake(value: Any, problem: Mapping[str, Any], where: str) -> str:
    """The end of the message about a rejected value: why it is not what it may look like; empty if that is clear.

    Args:
        value: the rejected value.
        problem: pydantic's description.
        where: the value's key.
    """
    if isinstance(value, float) and value.is_integer() and problem["type"] == "int_type":
        return f"; an integer has no point and no exponent: {value:.0f}"
    if isinstance(value, tuple | list) and len(problem["loc"]) == 1 and problem["type"] in SCALAR:
        return f"; a sweep over several values has no brackets: {where}={shown(value)[1:-1]}"
    if span := re.fullmatch(r"(\d+)(?:-|\.\.|:)(\d+)", str(value)):
        return f"; a sweep over {span[1]} to {span[2]}: -m '{where}=range({span[1]},{int(span[2]) + 1})'"
    if str(value) in options(where.replace(".", "/")):
        return f"; in a file: defaults: [override /{where.replace('.', '/')}: {value}]"
    if isinstance(value, int) and problem["type"] == "string_type":
        return f"""; in quotes it is one: '{where}="{shown(value)}"'"""
    if isinstance(value, str) and needs_quotes(value):
        return f"; {in_message(repr(value))} in quotes is a string"
    return ""


def _allowed(annotation: Any, path: str) -> str:
    """What a key allows, in words: the options of a config group, or the keys below a key that has some."""
    if names := options(group := path.replace(".", "/")):
        return f"{group}=OPTION, one of {', '.join(names)}"
    if is_dataclass(annotation):
        return f"{path}.KEY=VALUE with a KEY of {', '.join(field.name for field in fields(annotation))}"
    return describe(annotation)


def _plain(value: Any) -> Any:
    """A mapping unchanged, and a list of mappings as a tuple, as in config classes."""
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _is_mapping(annotation: Any) -> bool:
    """Whether a key takes a mapping, or a list of them, without building an object from it."""
    return (get_origin(annotation) or annotation) in (Mapping, dict) or any(map(_is_mapping, get_args(annotation)))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
