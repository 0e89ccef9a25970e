"""The files and arguments that set a value, in order: the answer of ``fedrun ... --why KEY``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrun.config.allowed_values import in_message
from fedrun.config.as_config import Plain
from fedrun.config.composed import compose
from fedrun.config.defaults_entry import SELF, entry_of
from fedrun.config.dotted_keys import NO_VALUE, dotted, value_at
from fedrun.config.options import conf_dir, content, files_in, groups, listed_file
from fedrun.config.overrides import completed
from fedrun.config.suggestions import did_you_mean
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Source:
    """One place that sets a value.

    Attributes:
        value: as written there.
        place: the file, or the command line.
    """

    value: Any
    place: str


@dataclass(frozen=True)
class ConfigFile:
    """One file of a composed configuration, or one option of a file that lists several.

    Attributes:
        place: its path from the folder of options, such as ``conf/model/mlp.yaml``; with the option of a list.
        group: the config group of the option; empty for ``config.yaml``.
        package: the dotted key below which its content is placed; empty: at the top.
        content: as written.
    """

    place: str
    group: str
    package: str
    content: Plain

    def choices(self) -> Iterator[tuple[str, Any]]:
        """The groups from which the file chooses an option, and the options."""
        for line in self.content.get("defaults", ()):
            if (entry := entry_of(line, self.group)) is not None and entry is not SELF and not entry.by_path:
                yield f"{entry.group}@{entry.package}" if entry.package else entry.group, entry.option


def why(key: str, overrides: Sequence[str], config_dir: Path | None = None) -> str:
    """Every place that sets a value, in order; the last one takes effect. Keys below the key are listed one by one.

    Args:
        key: such as ``local.lr``; or a config group, such as ``strategy/client``, for the choice of its option.
        overrides: as on the command line.
        config_dir: folder of further options.

    Raises:
        InputError: the configuration cannot be composed, or has no such key.
    """
    composed, overrides = compose(overrides, config_dir), completed(overrides)
    folders = [folder for folder in (config_dir, conf_dir()) if folder]
    files, arguments = _composition(overrides, folders)
    group = key.replace(".", "/")
    if group in groups(folders):
        chosen = [Source(option, file.place) for file in files for name, option in file.choices() if name == group]
        chosen += [Source(value, COMMAND_LINE) for name, value in arguments if name == group]
        return _written(group, composed.choices.get(group), chosen)
    keys = [known for known in dotted(composed.config) if known == key or known.startswith(f"{key}.")]
    if not keys:
        suggestion = did_you_mean(key, [*dotted(composed.config), *groups(folders)])
        raise InputError(f"--why {in_message(key)}: unknown key; fedrun --cfg job shows all keys{suggestion}")
    leaves = [known for known in keys if not isinstance(value_at(composed.config, known), Mapping)]
    return "\n".join(
        _written(leaf, value_at(composed.config, leaf), _sources(leaf, files, arguments)) for leaf in leaves
    )


def _written(key: str, value: Any, sources: Sequence[Source]) -> str:
    """A key with its value, and below it the places that set it."""
    values = [in_message(source.value) for source in sources]
    width = max(map(len, values), default=0)
    lines = [f"  {text:<{width}}  {source.place}" for text, source in zip(values, sources, strict=True)]
    return "\n".join([f"{key}={in_message(value)}", *lines])


def _sources(key: str, files: Sequence[ConfigFile], arguments: Sequence[tuple[str, Any]]) -> list[Source]:
    """The places that set a key, in the order in which they are merged."""
    sources = []
    for file in files:
        below = key.removeprefix(f"{file.package}.") if file.package else key
        if file.package and below == key:
            continue
        if (value := value_at(file.content, below, NO_VALUE)) is not NO_VALUE:
            sources.append(Source(value, file.place))
    for name, value in arguments:
        if key == name or key.startswith(f"{name}."):
            inner = value_at(value, key[len(name) + 1 :], NO_VALUE) if key != name else value
            if inner is not NO_VALUE:
                sources.append(Source(inner, COMMAND_LINE))
    return sources


def _composition(overrides: Sequence[str], folders: Sequence[Path]) -> tuple[list[ConfigFile], list[tuple[str, Any]]]:
    """The files of a configuration in the order in which Hydra merges them, and the keys and values of arguments."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.types import RunMode

    from fedrun.config.listed_options import register_listed_options

    register_listed_options()
    search_path = [f"hydra.searchpath=['file://{folder}']" for folder in folders[:-1]]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        defaults = loader.compute_defaults_list("config", [*search_path, *overrides], RunMode.RUN).defaults
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
    arguments = [(override.get_key_element().lstrip("+~"), override.value()) for override in parsed]
    return [file for default in defaults if (file := _file(default, folders)) is not None], arguments


def _file(default: ResultDefault, folders: Sequence[Path]) -> ConfigFile | None:
    """A file of the configuration; None if it is one of Hydra's own."""
    group, _, name = (default.config_path or "").rpartition("/")
    files = files_in(group, folders) if group else {"config": conf_dir() / "config.yaml"}
    if name not in files or group.partition("/")[0] == "hydra":
        return None
    path = files[name]
    place = next(path.relative_to(folder.parent).as_posix() for folder in folders if path.is_relative_to(folder))
    if path == listed_file(group):
        place = f"{place} ({name})"
    return ConfigFile(place, group, default.package or "", content(group, name, path))
