"""Which job of a table's sweep produces a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from fedrun.config.as_config import Plain
from fedrun.config.composed import Composed, compose
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import Scale
from fedrun.config.overrides import parsed
from fedrun.report.papers.table_reading import Overrides, load
from fedrun.system.errors import InputError

Values = Mapping[str, Any]
"""Keys and groups with their values, as read from overrides."""


def cell_configs(name: str, scale: Scale, positions: Iterable[int] | None = None) -> dict[int, Plain]:
    """The configuration, without the seed, of the job that produces each cell at a scale.

    Args:
        name: the table's name.
        scale: the sweep's scale.
        positions: positions of the cells in the table; None: all. Cells that no job produces are left out.

    Raises:
        InputError: jobs of several settings produce the same cell.
    """
    reading = load(name)
    table = reading.cells()
    jobs = {
        tuple(override for override in job if not override.startswith("seed=")): None
        for job in experiment_sweep(name).jobs(scale)
    }
    values = {job: override_values(job) for job in jobs}
    config_by_conditions: dict[Overrides, Plain | None] = {}
    configs: dict[int, Plain] = {}
    for position in range(len(table)) if positions is None else positions:
        if reading.reason(table[position]) is not None:
            continue
        conditions = reading.conditions(table[position], scale)
        if conditions not in config_by_conditions:
            required = override_values(conditions)
            candidates = [job for job in jobs if compatible(values[job], required)]
            matching_jobs = [composed_job(job) for job in candidates if meets(composed_job(job), required)]
            if any(job.config != matching_jobs[0].config for job in matching_jobs):
                several = " and ".join(" ".join(job.overrides) for job in matching_jobs[:2])
                raise InputError(f"experiment={name}: several jobs produce the cell with {conditions}: {several}")
            config_by_conditions[conditions] = matching_jobs[0].config if matching_jobs else None
        if (config := config_by_conditions[conditions]) is not None:
            configs[position] = config
    return configs


@cache
def composed_job(overrides: Overrides) -> Composed:
    """A composed job; tables share jobs."""
    return compose(overrides)


def override_values(overrides: Iterable[str]) -> dict[str, Any]:
    """``("dataset=digits", "local.lr=0.1")`` → ``{"dataset": "digits", "local.lr": 0.1}``."""
    return {override.key_or_group: override.value() for override in map(parsed, overrides)}


def compatible(job: Values, required: Values) -> bool:
    """Whether a job sets no required key to another value; values of keys that it does not set are not known yet."""
    return all(same(job[key], value) for key, value in required.items() if key in job)


def meets(composed: Composed, required: Values) -> bool:
    """Whether a composed job has all required options and values."""
    return all(
        composed.choices[key] == value if key in composed.choices else has(composed.config, key.split("."), value)
        for key, value in required.items()
    )


def has(node: Any, path: list[str], value: Any) -> bool:
    """Whether a configuration has a value at a key; of a mapping, whether it has each of its values."""
    for part in path:
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    if isinstance(value, Mapping):
        return all(has(node, [str(key)], item) for key, item in value.items())
    return same(node, value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; 1 and 1.0 (one client, all clients) are not."""
    return type(one) is type(other) and bool(one == other)
