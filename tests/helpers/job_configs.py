"""The configurations of an experiment's jobs, as its sweep makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedrun.config.composed import compose
from fedrun.config.experiments import experiment_sweep
from fedrun.config.options import config_dir_option


def job_config(overrides: Sequence[str]) -> dict[str, Any]:
    """The configuration of the first job of ``fedrun experiment=... scale=... KEY=VALUE ...``."""
    keys = dict(override.split("=", 1) for override in overrides)
    chosen = [override for override in overrides if override.partition("=")[0] not in ("experiment", "scale")]
    job = experiment_sweep(keys["experiment"]).jobs(keys.get("scale", "full"), chosen)[0]
    return compose(job, config_dir_option()).config
