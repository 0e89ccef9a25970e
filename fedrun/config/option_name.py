"""The names of the options that config objects come from, for messages and tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fedrun.config.dotted_keys import value_at
from fedrun.config.identity import class_name
from fedrun.config.options import config_dir_option, content, option_folders, readable_files


def chosen(group: str, part: object) -> str:
    """A config object as the command line chooses it, such as ``strategy/client=fedprox``.

    Args:
        group: such as ``strategy/client``.
        part: an object of a config class.
    """
    cls = type(part)
    return f"{group}={option_of(group, f'{cls.__module__}.{cls.__qualname__}')}"


def chosen_where(*parts: tuple[str, object, object]) -> list[str]:
    """The config objects for which a condition holds, as the command line chooses them.

    Args:
        parts: the group, the object and the condition of each.
    """
    return [chosen(group, part) for group, part, condition in parts if condition]


def group_at(key: str) -> str:
    """The group from which a key takes an option: of a place below another option's key, such as
    ``strategy.server.base``, the nearest group above it.
    """
    group = key.replace(".", "/")
    while "/" in group and not _names(group, config_dir_option()):
        group = group.rpartition("/")[0]
    return group


def option_of(group: str, target: str) -> str:
    """The only option of a group with this class; the class's name if there is no such option, or several.

    Args:
        group: such as ``strategy/client``.
        target: dotted path of the class. A class of fedrun may have been in another module when a run was recorded.
    """
    names = _names(group, config_dir_option()).get(class_name(target), ())
    return names[0] if len(names) == 1 else target.rpartition(".")[2]


@cache
def _names(group: str, config_dir: Path | None) -> dict[str, list[str]]:
    """The options of a group by the :func:`class_name` of their classes."""
    names: dict[str, list[str]] = {}
    for name, path in readable_files(group, option_folders(config_dir)).items():
        names.setdefault(class_name(class_of(group, name, path)), []).append(name)
    return names


def class_of(group: str, name: str, path: Path) -> str:
    """The dotted path of an option's class.

    Args:
        group: such as ``strategy/client``.
        name: the option's name.
        path: its file.
    """
    node = content(group, name, path)
    # an option may be placed at the top of the configuration
    place = "_target_" if "_target_" in node else f"{group.replace('/', '.')}._target_"
    return str(value_at(node, place))
