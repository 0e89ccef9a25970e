"""The files and arguments that set a value, in order: the answer of ``fedrun ... --why KEY``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode

from fedrun.config.allowed_values import in_message
from fedrun.config.as_config import Plain
from fedrun.config.composed import Composed, compose
from fedrun.config.defaults_entry import SELF, entry_of
from fedrun.config.dotted_keys import NO_VALUE, dotted, value_at
from fedrun.config.grids import NO_JOBS, Job, jobs
from fedrun.config.hydra_config import hydra_config, hydra_options
from fedrun.config.options import conf_dir, content, files_in, groups, listed_file, option_folders
from fedrun.config.overrides import key_of, parsed, with_implied
from fedrun.config.suggestions import did_you_mean
from fedrun.config.sweeper import sweeper_settings
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.core.default_element import ResultDefault

COMMAND_LINE = "command line"
SWEEP = "the sweep (hydra.sweeper)"
SEARCH = "values that the search tries (hydra.sweeper.stages)"


Argument: TypeAlias = tuple[str, Any, str]
"""A key, its value, and who sets it."""


Source: TypeAlias = tuple[Any, str]
"""A value as written, and where: the file, the command line, or the sweep."""


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

    For a sweep, such as an experiment's, there is one answer for each value that its jobs have.

    Args:
        key: such as ``local.lr``; or a config group, such as ``strategy/client``, for the choice of its option.
        overrides: as on the command line.
        config_dir: folder of further options.

    Raises:
        InputError: the configuration cannot be composed, or has no such key; or a sweep has no jobs.
    """
    arguments = with_implied(overrides)
    folders = option_folders(config_dir)
    common = [argument for argument in arguments if not parsed(argument).is_sweep_override()]
    composed = compose(common, config_dir)
    all_jobs, tuned = _runs(arguments, common, config_dir)
    if not all_jobs:
        raise InputError(NO_JOBS)
    jobs_by_value: dict[str, list[Job]] = {}
    for job in all_jobs:
        if (value := _value(key, compose(job, config_dir), folders)) is not NO_VALUE:
            jobs_by_value.setdefault(repr(value), []).append(job)
    if not jobs_by_value:
        suggestion = did_you_mean(key, [*dotted(composed.config), *groups(folders)])
        raise InputError(f"--why {in_message(key)}: unknown key; fedrun --cfg job shows all keys{suggestion}")
    answers = []
    for alike in jobs_by_value.values():
        own = " ".join(override for override in alike[0] if override not in arguments)
        title = f"{len(alike)} of {len(all_jobs)} jobs, such as {own}:\n" if len(all_jobs) > 1 else ""
        files, values = _composition(alike[0], arguments, folders)
        answers.append(title + _answer(key, compose(alike[0], config_dir), files, [*values, *tuned], folders))
    return "\n\n".join(answers)


def _runs(arguments: list[str], common: list[str], config_dir: Path | None) -> tuple[list[Job], list[Argument]]:
    """The overrides of each run that a command line starts, and the values that a search tries.

    Args:
        arguments: arguments of the command line.
        common: those of them that choose one value.
        config_dir: folder of further options.
    """
    config = hydra_config(common, config_dir)
    if config.hydra.mode != RunMode.MULTIRUN:
        return [arguments], []
    sweeper = sweeper_settings(config.hydra)
    given = {key_of(argument) for argument in arguments}
    searched = [(key, values, SEARCH) for stage in sweeper.at(config.scale).stages for key, values in stage.items()]
    of_jobs = [argument for argument in arguments if not argument.lstrip("+~").startswith(("hydra.", "hydra/"))]
    return jobs(sweeper, config.name, config.scale, of_jobs, None), [one for one in searched if one[0] not in given]


def _value(key: str, composed: Composed, folders: Sequence[Path]) -> Any:
    """The value of a key, or the option of a group; ``NO_VALUE`` if there is no such key."""
    if (group := key.replace(".", "/")) in groups(folders):
        return composed.choices.get(group)
    return value_at(composed.config, key, NO_VALUE)


def _answer(
    key: str, composed: Composed, files: Sequence[ConfigFile], arguments: Sequence[Argument], folders: Sequence[Path]
) -> str:
    """The places that set a key, or choose the option of a group, in one configuration."""
    group = key.replace(".", "/")
    if group in groups(folders):
        chosen: list[Source] = [
            (option, file.place) for file in files for name, option in file.choices() if name == group
        ]
        chosen += [(value, place) for name, value, place in arguments if name == group]
        return _written(group, composed.choices.get(group), chosen)
    keys = [known for known in dotted(composed.config) if known == key or known.startswith(f"{key}.")]
    leaves = [known for known in keys if not isinstance(value_at(composed.config, known), Mapping)]
    return "\n".join(
        _written(leaf, value_at(composed.config, leaf), _sources(leaf, files, arguments)) for leaf in leaves
    )


def _written(key: str, value: Any, sources: Sequence[Source]) -> str:
    """A key with its value, and below it the places that set it."""
    values = [in_message(value) for value, _ in sources]
    width = max(map(len, values), default=0)
    lines = [f"  {text:<{width}}  {place}" for text, (_, place) in zip(values, sources, strict=True)]
    return "\n".join([f"{key}={in_message(value)}", *lines])


def _sources(key: str, files: Sequence[ConfigFile], arguments: Sequence[Argument]) -> list[Source]:
    """The places that set a key, in the order in which they are merged."""
    sources: list[Source] = []
    for file in files:
        below = key.removeprefix(f"{file.package}.") if file.package else key
        if file.package and below == key:
            continue
        if (value := value_at(file.content, below, NO_VALUE)) is not NO_VALUE:
            sources.append((value, file.place))
    for name, value, place in arguments:
        if key == name or key.startswith(f"{name}."):
            inner = value_at(value, key[len(name) + 1 :], NO_VALUE) if key != name else value
            if inner is not NO_VALUE:
                sources.append((inner, place))
    return sources


def _composition(
    overrides: Sequence[str], arguments: Sequence[str], folders: Sequence[Path]
) -> tuple[list[ConfigFile], list[Argument]]:
    """The files of a configuration in the order in which Hydra merges them, and its overrides.

    Args:
        overrides: overrides of the job.
        arguments: arguments of the command line.
        folders: folders of options.
    """
    GlobalHydra.instance().clear()
    with hydra_options(folders[0] if folders[1:] else None):
        loader = GlobalHydra.instance().config_loader()
        defaults = loader.compute_defaults_list("config", list(overrides), RunMode.RUN).defaults
        read = OverridesParser.create(config_loader=loader).parse_overrides(list(overrides))
    given = {key_of(argument) for argument in arguments}
    values = [
        (override.get_key_element().lstrip("+~"), override.value(), COMMAND_LINE if key_of(text) in given else SWEEP)
        for text, override in zip(overrides, read, strict=True)
    ]
    return [file for default in defaults if (file := _file(default, folders)) is not None], values


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
