"""Sweeps over several grids: a paper's table is rarely one, as a baseline lacks keys of what it is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader
    from hydra.core.override_parser.types import Override

Job = list[str]
"""The overrides of one job of a sweep."""

Grid = Mapping[str, Any]
"""The values of some keys, each as on the command line: ``{"seed": "0,1,2"}``."""


def jobs(params: Grid, grids: Sequence[Grid], arguments: Sequence[str], loader: ConfigLoader | None) -> list[Job]:
    """The jobs of a sweep.

    What was asked for on the command line takes the place of a grid's values. Where several grids list values of a key,
    each takes those of the asked values that it lists, and a grid without any of them is left out; a value that none of
    them lists goes into all.

    Args:
        params: what all grids have in common.
        grids: what each has besides.
        arguments: what was asked for on the command line.
        loader: Hydra's, for messages.

    Raises:
        HydraException: a value cannot be read.
    """
    asked = values(arguments, loader)
    listed = [values([f"{key}={value}" for key, value in {**params, **grid}.items()], loader) for grid in grids]
    everywhere = {
        key for key, choices in asked.items() if not set(choices) <= {v for grid in listed for v in grid.get(key, ())}
    }
    found: dict[tuple[str, ...], None] = {}
    for grid in listed:
        own = {
            key: choices if key in everywhere or key not in grid else [v for v in choices if v in grid[key]]
            for key, choices in asked.items()
        }
        found |= dict.fromkeys(product(*{**grid, **own}.values()))
    return [list(job) for job in found]


def values(arguments: Sequence[str], loader: ConfigLoader | None) -> dict[str, list[str]]:
    """The overrides that each key may take in a job: ``seed=0,1`` → ``{"seed": ["seed=0", "seed=1"]}``."""
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(arguments))
    return {override.get_key_element(): _choices(override) for override in parsed}


def _choices(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise HydraException(f"{key}: a sweep over an interval needs a sweeper that searches")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]
