"""Which job of a table's sweep produces a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedrun.config.as_config import Plain
from fedrun.config.dotted_keys import dotted
from fedrun.config.grids import Scale
from fedrun.config.suggestions import did_you_mean
from fedrun.report.papers.described_tables import load_table, required_values
from fedrun.report.papers.job_values import (
    Values,
    compatible,
    composed_job,
    meets,
    override_values,
    settings_of_jobs,
)
from fedrun.report.papers.table_reading import Overrides, TableReading
from fedrun.system.errors import InputError


def cell_configs(name: str, scale: Scale, positions: Iterable[int] | None = None) -> dict[int, Plain]:
    """The configuration, without the seed, of the job that produces each cell at a scale.

    Args:
        name: the table's name.
        scale: the sweep's scale.
        positions: positions of the cells in the table; None: all. Cells that no job produces are left out.

    Raises:
        InputError: jobs of several settings produce the same cell, or at scale full a coordinate means a key that no
            job has.
    """
    reading = load_table(name)
    table = reading.cells()
    jobs = settings_of_jobs(name, scale)
    values = {job: override_values(job) for job in jobs}
    config_by_conditions: dict[Overrides, Plain | None] = {}
    configs: dict[int, Plain] = {}
    for position in range(len(table)) if positions is None else positions:
        if reading.reason(table[position]) is not None:
            continue
        conditions = reading.conditions(table[position], scale)
        if conditions not in config_by_conditions:
            required = required_values(reading, "coordinates", conditions)
            candidates = [job for job in jobs if compatible(values[job], required)]
            matching_jobs = [composed_job(job) for job in candidates if meets(composed_job(job), required)]
            if scale == "full" and candidates and not matching_jobs:  # elsewhere stand-ins may lack keys
                _check_keys(reading, required, candidates)
            if any(job.config != matching_jobs[0].config for job in matching_jobs):
                several = " and ".join(" ".join(job.overrides) for job in matching_jobs[:2])
                raise InputError(f"experiment={name}: several jobs produce the cell with {conditions}: {several}")
            config_by_conditions[conditions] = matching_jobs[0].config if matching_jobs else None
        if (config := config_by_conditions[conditions]) is not None:
            configs[position] = config
    return configs


def _check_keys(reading: TableReading, required: Values, candidates: Sequence[Overrides]) -> None:
    """Reject a required key that none of the jobs has which may produce a cell.

    Raises:
        InputError: there is one.
    """
    jobs = [composed_job(job) for job in candidates]
    for key in required:
        known = {name: None for job in jobs for name in (*job.choices, *dotted(job.config))}
        if key not in known:
            raise reading.error(
                "coordinates",
                f"{key} is not a key of the sweep's jobs; allowed: the keys that fedrun --cfg job shows"
                f"{did_you_mean(key, known)}",
            )
