"""Read and complete arguments of the command line, such as ``local.lr=0.1``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from fedrun.config.allowed_values import in_message
from fedrun.config.dotted_keys import dotted
from fedrun.config.options import options
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

WITHOUT_HPARAMS, ADDED = "~hparams", "~hparams@_global_"


@cache
def parsed(argument: str) -> Override:
    """An argument as Hydra reads it. The jobs of a sweep share most arguments, and reading one takes milliseconds.

    Raises:
        OverrideParseException: it cannot be read.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (override,) = OverridesParser.create().parse_overrides([argument])
    return override


def key_of(argument: str) -> str:
    """``KEY`` of ``KEY=VALUE``, ``+KEY=VALUE`` and ``++KEY=VALUE``; ``~KEY`` of ``~KEY``."""
    return argument.lstrip("+").partition("=")[0]


def keys_of(argument: str) -> list[str]:
    """The dotted keys that an argument sets: of ``local={lr: 0.1}`` these are ``local`` and ``local.lr``."""
    key, _, value = argument.lstrip("+~").partition("=")
    if not value.startswith("{"):
        return [key]
    return [key, *dotted(parsed(argument).value(), key)]


def quoted(text: str) -> str:
    """A string as a value on the command line, whatever characters it has."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def needs_quotes(text: str) -> bool:
    """Whether a string would be something else on the command line without quotes, such as a number, a list or null."""
    from hydra.errors import HydraException

    try:
        return not isinstance(parsed(f"key={text}").value(), str)
    except HydraException:  # it cannot be read at all
        return False


EXPANDED = (
    "data_dir",
    "cache_dir",
    "initial.path",
    "appeal.path",
    "dataset.data_dir",
    "dataset.cache_dir",
    "dataset.file",
    "dataset.name",
    "dataset.vectors",
)
"""The keys in whose values a ``~`` at the beginning means the home folder."""


def home_folder(key: str, value: str) -> str:
    """The message that rejects a value which begins with ``~``: Hydra reads it in quotes only, and few keys expand it.

    Args:
        key: key of the configuration.
        value: such as ``~/outputs``.
    """
    written = f"{key}={in_message(value)}"
    if key in EXPANDED:
        return f"{written}: ~ needs quotes that the shell leaves; allowed: '{key}=\"{value}\"', or the path in full"
    below = value.partition("/")[2] or "outputs"
    return f'{written}: ~ would be a folder of this name; allowed: the path in full, such as "{key}=$HOME/{below}"'


def with_implied(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command line; ``~hparams`` also leaves out the strategy's own values.

    Raises:
        InputError: a group is set to a list of options.
    """
    for argument in arguments:
        group, choice = key_of(argument), argument.partition("=")[2]
        if choice.startswith("[") and (names := options(group)):
            raise InputError(f"{in_message(argument)}: a list; allowed: {group}=OPTION, one of {', '.join(names)}")
    if WITHOUT_HPARAMS not in arguments or ADDED in arguments:
        return list(arguments)
    position = arguments.index(WITHOUT_HPARAMS) + 1
    return [*arguments[:position], ADDED, *arguments[position:]]


def set_in_each_job(arguments: Sequence[str]) -> list[str]:
    """Arguments in which values below options of a sweep are swept, too: ``strategy=fedprox,moon
    strategy.client.mu=1,1``, of which each job is made once. Hydra would set others before the jobs choose the options
    that have these keys.

    Hydra's sweepers, such as Optuna's, would search among the values, so their arguments are not changed.
    """
    if any(key_of(argument) == "hydra/sweeper" for argument in arguments):
        return list(arguments)
    several = [key_of(argument) for argument in arguments if "," in argument and options(key_of(argument))]
    below = tuple(f"{group.replace('/', '.')}." for group in several if group)

    def in_each(argument: str) -> str:
        key, _, value = argument.partition("=")
        if "=" not in argument or not key.startswith(below) or parsed(argument).is_sweep_override():
            return argument
        written = value or quoted("")
        return f"{key}={written},{written}"

    return [in_each(argument) for argument in arguments] if below else list(arguments)


def typed(overrides: Sequence[str]) -> list[str]:
    """Hydra's list of overrides as they were typed. Iterating over it would give the value of ``${rounds}``, which may
    differ between the jobs of a sweep.
    """
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(overrides, resolve=False)
    assert isinstance(plain, list)
    return plain


def without_implied(arguments: Iterable[str]) -> tuple[str, ...]:
    """Arguments without what :func:`with_implied` added, as they are shown and recorded."""
    known = tuple(arguments)
    return tuple(argument for argument in known if argument != ADDED or WITHOUT_HPARAMS not in known)


def reject_contradiction(arguments: Sequence[str]) -> None:
    """Reject arguments of which one leaves a group out and another one chooses its option.

    The job of a sweep may have both: ``~hparams`` of the command line leaves out what an experiment chooses.

    Raises:
        InputError: there are such arguments.
    """
    left_out = {argument[1:]: argument for argument in reversed(arguments) if argument.startswith("~")}
    if WITHOUT_HPARAMS in arguments:
        left_out[ADDED[1:]] = WITHOUT_HPARAMS
    for argument in arguments:
        if "=" in argument and (key := key_of(argument)) in left_out:
            raise InputError(
                f"{left_out[key]} {in_message(argument)}: leaves {key} out and sets it; allowed: one of the two"
            )


HYDRAS_FOLDERS = ("hydra.run.dir", "hydra.job.chdir")
"""Keys by which Hydra would choose or enter a run's folder, whose name is its configuration's."""


def reject_folders_of_hydra(arguments: Sequence[str]) -> None:
    """Reject arguments that would start a run in a folder of Hydra's, where the same command does not find it again.

    Raises:
        InputError: there is such an argument.
    """
    for argument in arguments:
        if key_of(argument) in HYDRAS_FOLDERS:
            raise InputError(f"{in_message(argument)}: a run has its own folder; allowed: output_dir=FOLDER, name=NAME")


OF_SWEEPS = ("hydra.sweep", "hydra.launcher", "hydra/sweeper", "hydra/launcher")
"""The prefixes of keys and groups that a single run does not read."""


OF_THE_SWEEP = frozenset({"metric", "table", "figures"})
"""The keys below ``hydra.sweeper`` in which a reference such as ``${rounds}`` is to the value of the sweep. In the
others, which make its jobs, it is to that of each job.
"""


def reject_settings_of_sweeps(arguments: Iterable[str]) -> None:
    """Reject arguments of a single run that only a sweep reads.

    Raises:
        InputError: there is such an argument.
    """
    for argument in arguments:
        if argument.lstrip("+~").startswith(OF_SWEEPS):
            raise InputError(f"{in_message(argument)}: is for sweeps; allowed: with -m, or in an experiment's sweep")
