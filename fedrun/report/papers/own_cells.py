"""The cells of a table without a file of the paper's numbers: those that the jobs of its sweep make."""

from __future__ import annotations

from collections.abc import Mapping

from fedrun.config.composed import Composed
from fedrun.config.experiments import experiment_sweep
from fedrun.report.papers.job_values import composed_job, meets, override_values, settings_of_jobs, value_of
from fedrun.report.papers.paper import Cell


def own_cells(
    experiment: str, coordinates: Mapping[str, str | Mapping[str, tuple[str, ...]]], units: Mapping[str, str]
) -> list[Cell]:
    """A cell without a number for each setting of the jobs at the largest scale, and each metric.

    Args:
        experiment: such as ``mine/table1``.
        coordinates: what their values mean on the command line (:class:`TableReading`).
        units: the unit of each metric.
    """
    places: dict[tuple[tuple[str, str], ...], None] = {}
    for job in settings_of_jobs(experiment, experiment_sweep(experiment).scales[0]):
        composed = composed_job(job)
        place: dict[str, str] = {}
        for key, meaning in coordinates.items():
            if (value := coordinate(composed, meaning)) is not None:
                names = key.split()  # the value of the last one may have spaces, or be missing
                place |= dict(zip(names, value.split(" ", len(names) - 1), strict=False))
        places[tuple(place.items())] = None
    return [
        Cell(
            paper=experiment.partition("/")[0],
            table="",
            dataset=dict(place).get("dataset", ""),
            setting={key: value for key, value in place if key not in ("dataset", "strategy")},
            strategy=dict(place).get("strategy", ""),
            metric=metric,
            printed="",
            std=None,
            unit=unit,
        )
        for place in places
        for metric, unit in units.items()
    ]


def coordinate(composed: Composed, meaning: str | Mapping[str, tuple[str, ...]]) -> str | None:
    """The value of a coordinate that a job has: of several the one with the most conditions; None if it has none."""
    if isinstance(meaning, str):
        return value_of(composed, meaning.partition("=")[0])
    held = [value for value, overrides in meaning.items() if meets(composed, override_values(overrides))]
    return max(held, key=lambda value: len(meaning[value]), default=None)
