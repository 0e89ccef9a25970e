"""The jobs of an experiment's sweep, at one of its scales.

An experiment describes its sweep below ``hydra.sweeper``: ``params`` are in all grids, ``grids`` list the values in
which they differ (a paper's table is rarely one grid, because a baseline lacks keys of the other strategies), and each
of ``scales`` selects some of the grids' values, or sets others, as a command line would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from fedrun.config.allowed_values import shown
from fedrun.config.identity import comparable
from fedrun.config.overrides import key_of, parsed

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

    from fedrun.config.sweeper import SweeperSettings

Scale: TypeAlias = Literal["full", "small", "smoke"]
"""How much of an experiment is run: as published, in about an hour, in a minute on data that need no download."""

SCALES: tuple[Scale, ...] = get_args(Scale)

Job = list[str]
"""The overrides of one job of a sweep."""

Grid = Mapping[str, Any]
"""The values of some keys, each as on the command line: ``{"seed": "0,1,2"}``."""

NO_JOBS = "this sweep has no jobs: some key has no values, or hydra.sweeper.grids is empty"
"""The message that rejects a sweep without jobs."""

Choices = dict[str, list[str]]
"""The overrides that each key may take in a job: ``{"seed": ["seed=0", "seed=1"]}``."""


def jobs(
    sweeper: SweeperSettings, name: str, scale: str, arguments: Sequence[str], loader: ConfigLoader | None
) -> list[Job]:
    """The jobs of a sweep.

    Args:
        sweeper: the values below ``hydra.sweeper``.
        name: name of the experiment's runs at scale full.
        scale: one of the experiment's scales; ``full`` if it has none.
        arguments: arguments of the command line; they take precedence over the scale.
        loader: Hydra's, which lists the options for ``glob(...)``; None: values with ``glob`` are rejected.

    Raises:
        InputError: the experiment has no such scale.
        HydraException: a value cannot be read.
    """
    grids = [values(arguments_of({**sweeper.params, **grid}), loader) for grid in sweeper.grids]
    chosen = sweeper.at(scale)
    scaled = [
        {**grid, **({} if scale == "full" else {"name": [f"name={named(name, scale)}"]})}
        for settings in chosen.grids
        for grid in select(grids, values(arguments_of({**chosen.params, **settings}), loader))
    ]
    distinct: dict[tuple[str, ...], None] = {}
    for grid in select(scaled, values(arguments, loader)):
        distinct |= dict.fromkeys(product(*grid.values()))
    return [list(job) for job in distinct]


def unseeded(job: Job) -> tuple[str, ...]:
    """The overrides of a job except the seed."""
    return tuple(override for override in job if key_of(override) != "seed")


def named(experiment: str, scale: str) -> str:
    """An experiment at a scale, such as ``turbosvm/table2/small``; at scale full it has no suffix."""
    return experiment if scale == "full" else f"{experiment}/{scale}"


def select(grids: Sequence[Choices], chosen: Choices) -> list[Choices]:
    """The grids with the chosen values instead of theirs.

    If several grids list values of a key, each takes those of the chosen values that it lists, however they are
    written, and a grid without any of them is left out. A value that no grid lists goes into all of them.
    """
    listed = [{key: set(map(meaning, grid[key])) for key in chosen if key in grid} for grid in grids]
    everywhere = {
        key
        for key, choices in chosen.items()
        if any(all(meaning(one) not in own.get(key, ()) for own in listed) for one in choices)
    }
    selected = [
        grid
        | {
            key: [one for one in choices if key in everywhere or key not in own or meaning(one) in own[key]]
            for key, choices in chosen.items()
        }
        for grid, own in zip(grids, listed, strict=True)
    ]
    return [grid for grid in selected if all(grid.values())]


def meaning(override: str) -> str:
    """A string, equal for overrides that set a key to the same value: ``local.lr=0.1`` and ``local.lr=1e-1``."""
    read = parsed(override)
    return f"{key_of(override)}={comparable(read.key_or_group, read.value())!r}"


def arguments_of(grid: Grid) -> list[str]:
    """A grid as arguments of a command line: ``{"seed": "0,1", "local.steps": None}`` → ``seed=0,1``,
    ``local.steps=null``.
    """
    return [f"{key}={shown(value)}" for key, value in grid.items()]


def values(arguments: Sequence[str], loader: ConfigLoader | None) -> Choices:
    """The overrides that each key may take in a job: ``seed=0,1`` → ``{"seed": ["seed=0", "seed=1"]}``."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(arguments))
    return {key_of(override.get_key_element()): _choices(override) for override in overrides}


def _choices(override: Override) -> list[str]:
    from hydra.errors import HydraException

    key = override.get_key_element()
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise HydraException(f"{key}: a sweep over an interval needs a sweeper that searches")
    # Hydra writes ${rounds} as $\{rounds\}, which means the same
    return [re.sub(r"\$\\{([\w.]+)\\}", r"${\1}", f"{key}={value}") for value in override.sweep_string_iterator()]
