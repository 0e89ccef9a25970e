"""The values of a sweep's jobs, and whether a job has those that a cell of a table requires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fedrun.config.allowed_values import shown
from fedrun.config.composed import Composed, compose
from fedrun.config.dotted_keys import NO_VALUE, value_at
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import Scale, unseeded
from fedrun.config.identity import comparable
from fedrun.config.options import config_dir_option
from fedrun.config.overrides import parsed

Values = Mapping[str, Any]
"""Keys and groups with their values, as read from overrides."""


def settings_of_jobs(experiment: str, scale: Scale) -> list[tuple[str, ...]]:
    """The overrides of an experiment's jobs without their seeds, each once."""
    return list(dict.fromkeys(map(unseeded, experiment_sweep(experiment).jobs(scale))))


def composed_job(overrides: tuple[str, ...]) -> Composed:
    """A composed job."""
    return _composed_job(overrides, config_dir_option())


@cache
def _composed_job(overrides: tuple[str, ...], folder: Path | None) -> Composed:
    """The same, which tables share."""
    return compose(overrides, folder)


def override_values(overrides: Iterable[str]) -> dict[str, Any]:
    """``("dataset=digits", "local.lr=0.1")`` → ``{"dataset": "digits", "local.lr": 0.1}``."""
    return {override.key_or_group: override.value() for override in map(parsed, overrides)}


def compatible(job: Values, required: Values) -> bool:
    """Whether a job sets no required key to another value; values of keys that it does not set are not known yet."""
    return all(same(key, job[key], value) for key, value in required.items() if key in job)


def meets(composed: Composed, required: Values) -> bool:
    """Whether a composed job has all required options and values."""
    return all(
        composed.choices[key] == value if key in composed.choices else has(composed.config, key, value)
        for key, value in required.items()
    )


def has(node: Any, key: str, value: Any) -> bool:
    """Whether a configuration has a value at a key; of a mapping, whether it has each of its values."""
    if isinstance(value, Mapping):
        return all(has(node, f"{key}.{name}", item) for name, item in value.items())
    return same(key, value_at(node, key, NO_VALUE), value)


def same(key: str, one: Any, other: Any) -> bool:
    """Whether two values of a key are equal, however a number is written."""
    one, other = comparable(key, one), comparable(key, other)
    return type(one) is type(other) and bool(one == other)


def value_of(composed: Composed, key: str) -> str | None:
    """The option of a group or the value of a key as on the command line; None if the job has no such key."""
    value = composed.choices.get(key, NO_VALUE)
    if value is NO_VALUE:
        value = value_at(composed.config, key, NO_VALUE)
    return None if value is NO_VALUE or isinstance(value, Mapping) else shown(value)
