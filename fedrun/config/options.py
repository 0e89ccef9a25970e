"""The folder of config groups, and the options that each group has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from yaml import YAMLError
from yaml.reader import ReaderError

from fedrun.config.defaults_entry import added, below
from fedrun.system.errors import InputError, one_line
from fedrun.system.user_path import user_path
from fedrun.system.yaml_file import read_yaml

CHOSEN_BY_PATH = ("experiment",)
"""Groups whose folders are parts of an option's name: each paper's experiments have their own folder."""

SETTINGS = ("experiment", "hparams")
"""Groups whose options change values of keys that others have."""

HYDRA_GROUPS = {
    "hydra/launcher": {"basic": "The jobs of a sweep one after the other, in the process of the command."},
    "hydra/sweeper": {"basic": "The jobs of a sweep: all combinations of the values of some keys."},
}
"""Groups of Hydra to which fedrun adds options; Hydra's own options, and what they mean."""


@cache
def conf_dir() -> Path:
    """The folder of the config groups: ``conf/`` inside an installed package, or at the top of the repository."""
    package = Path(__file__).parents[1]
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def listed_file(group: str) -> Path:
    """The file that lists the options of a group without their own files, such as ``conf/strategy.yaml``.

    Each of its keys is an option.
    """
    return conf_dir() / f"{group}.yaml"


def listed(group: str) -> list[str]:
    """The options of a group that :func:`listed_file` lists."""
    file = listed_file(group)
    if group in ("", "config") or "/" in group or not file.is_file():
        return []
    return list(_contents(file, file.stat().st_mtime_ns))


def first_sentence(comment: str) -> str:
    """The first sentence of a comment."""
    return re.split(r"(?<=\.) (?=[A-Z])", comment)[0]


def readable(file: Path) -> Any:
    """The content of a file of options.

    Raises:
        InputError: it is not YAML, or cannot be read.
    """
    try:
        return read_yaml(file)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; allowed: files of options that can be read") from None
    except (YAMLError, ValueError, RecursionError) as error:
        allowed = "; allowed: YAML in UTF-8" if isinstance(error, ReaderError) else ""
        raise InputError(f"{file}: is not YAML ({one_line(' '.join(str(error).split()), 300)}){allowed}") from None


@cache
def _contents(file: Path, modified: int) -> dict[str, Any]:
    """The content of a file; ``modified``: the time of its last change."""
    contents = readable(file)
    return {str(name): content for name, content in contents.items()} if isinstance(contents, dict) else {}


def content(group: str, name: str, file: Path) -> dict[str, Any]:
    """The content of an option, as plain containers and scalars; interpolations are not resolved.

    Args:
        group: such as ``strategy``.
        name: the option.
        file: the option's own, or the file that lists it.

    Raises:
        InputError: the file is not YAML, or cannot be read.
    """
    contents = _contents(file, file.stat().st_mtime_ns)
    return deepcopy(contents[name] if file == listed_file(group) else contents)


def header(file: Path) -> dict[str, list[str]]:
    """What a file's first lines, those that begin with ``# @``, say: the words after each first word."""
    with file.open(encoding="utf-8") as lines:
        marked = takewhile(re.compile(r"#\s*@").match, filter(None, map(str.strip, lines)))
        return {name: words for name, *words in (line.lstrip("#").split() for line in marked)}


def package_of(file: Path, group: str) -> str:
    """The key below which the content of a group's file is placed; empty: at the top."""
    return below("", " ".join(header(file).get("@package", [group.replace("/", ".")])))


_config_dir: ContextVar[Path | None] = ContextVar("_config_dir", default=None)


@contextmanager
def with_config_dir(folder: Path | None) -> Iterator[None]:
    """Run the block with this folder of further options as the command's; None: there is none."""
    token = _config_dir.set(folder)
    try:
        yield
    finally:
        _config_dir.reset(token)


def config_dir_option() -> Path | None:
    """The folder of further options that the running command has from ``--config-dir``, if any."""
    return _config_dir.get()


def further_folder(config_dir: str | Path) -> Path:
    """A folder of further options, as an absolute path.

    Raises:
        InputError: there is no such folder, or the path is empty.
    """
    folder = user_path(str(config_dir), "--config-dir").absolute()
    if not folder.is_dir():
        raise InputError(
            f"--config-dir {config_dir}: no such folder; allowed: one with options, each in a file GROUP/OPTION.yaml"
        )
    return folder


def options(group: str, config_dir: Path | None = None) -> list[str]:
    """The names of a config group's options; none if there is no such group.

    Args:
        group: such as ``strategy/client``.
        config_dir: folder of further options; None: the running command's.
    """
    return sorted(option_files(group, config_dir))


def option_files(group: str, config_dir: Path | None = None) -> dict[str, Path]:
    """The file of each of a group's options: its own, or the one that lists it."""
    return files_in(group, option_folders(config_dir or config_dir_option()))


def option_folders(further: Path | None) -> list[Path]:
    """The folders of options: a folder of further options, if there is one, and fedrun's own."""
    return [conf_dir()] if further is None else [further, conf_dir()]


def files_in(group: str, folders: Iterable[Path]) -> dict[str, Path]:
    """The file of each of a group's options in some folders of options: its own, or the one that lists it.

    If several options have the same name, a file in fedrun's folder comes first, then one in a further folder, then a
    listed option.
    """
    if not re.fullmatch(r"\w[\w/-]*", group):  # config.yaml is in no group, and .. leads to other folders
        return {}
    pattern = "**/*.yaml" if group in CHOSEN_BY_PATH else "*.yaml"
    in_order = sorted(folders, key=conf_dir().__eq__)  # fedrun's last
    files = dict.fromkeys(listed(group), listed_file(group)) if conf_dir() in in_order else {}
    for folder in in_order:
        above = folder / group
        files |= {path.relative_to(above).with_suffix("").as_posix(): path for path in above.glob(pattern)}
    return files


def readable_files(group: str, folders: Iterable[Path]) -> dict[str, Path]:
    """The files of :func:`files_in` that can be read: for messages about other options than those of a broken file."""
    return {name: file for name, file in files_in(group, folders).items() if _is_readable(file)}


def _is_readable(file: Path) -> bool:
    try:
        _contents(file, file.stat().st_mtime_ns)
    except (InputError, OSError):
        return False
    return True


def groups(folders: Iterable[Path]) -> list[str]:
    """All config groups of some folders, without Hydra's own, in alphabetical order."""
    return sorted({group for folder in folders for group in _groups(folder, "")})


def _groups(folder: Path, above: str) -> Iterator[str]:
    for path in (folder / above).iterdir():
        group = f"{above}/{path.stem}" if above else path.stem
        if listed(group):
            yield group
        if path.is_dir() and path.name != "hydra":
            yield group
            if group not in CHOSEN_BY_PATH:
                yield from _groups(folder, group)


def parts(group: str, name: str, config_dir: Path | None = None) -> frozenset[str]:
    """The groups below an option of a group in which its defaults list chooses, such as ``client`` and ``server``."""
    written = content(group, name, option_files(group, config_dir)[name])
    return frozenset(entry.relative for entry in added(written, group) if not entry.by_path)
