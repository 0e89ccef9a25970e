"""Our number for a cell of a table, from the cell's runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrun.data.evaluation_split import TARGETED
from fedrun.data.targets import Target
from fedrun.evaluation.rounds_to_target import describe, interpolated
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.readings import RoundsTo, SpeedUp, ValueAt
from fedrun.report.papers.table_reading import TableReading
from fedrun.report.quantities import finite
from fedrun.report.runs import Run
from fedrun.runs.display import wording
from fedrun.runs.metrics_file import evaluated_rounds, round_reached, series

NOT_RUN = "not run"


@dataclass(frozen=True)
class Measurement:
    """Our number for a cell.

    Attributes:
        text: as printed.
        number: the mean over the seeds in the paper's unit; None if there is none.
        std: its standard deviation over the seeds (ddof 0); None with one seed or without a mean.
        early: the round that was read instead of the paper's, if the runs were shorter; None otherwise.
        of_stand_in: the runs are of other data or another model than the paper's.
    """

    text: str
    number: float | None
    std: float | None = None
    early: int | None = None
    of_stand_in: bool = False


def measure(
    position: int, table: Sequence[Cell], table_reading: TableReading, runs: Mapping[int, Sequence[Run]]
) -> Measurement:
    """Our number for one cell.

    Args:
        position: the cell's position in the table.
        table: all cells.
        table_reading: how they are read.
        runs: each cell's runs, by its position.
    """
    cell, cell_runs = table[position], runs.get(position, ())
    reading = table_reading.reading(cell)
    if isinstance(reading, SpeedUp):
        places = table_reading.reference(cell, reading, table)
        above, below = (measure(place, table, table_reading, runs).number for place in places)
        if above is None or below is None:
            return Measurement(wording.ABSENT if cell_runs else NOT_RUN, None)
        ratio = above / below
        return Measurement(f"{ratio:.{cell.decimals}f}", ratio)
    if not cell_runs:
        return Measurement(NOT_RUN, None)
    if isinstance(reading, RoundsTo):
        hits = [rounds_needed(run, reading) for run in cell_runs]
        reached = [hit for hit in hits if hit is not None]
        censored = [run.last_round for run, hit in zip(cell_runs, hits, strict=True) if hit is None]
        text = describe(hits, min(censored, default=0))
        return Measurement(text, None) if censored else Measurement(text, statistics.fmean(reached), deviation(reached))
    return value(cell, reading, cell_runs)


def rounds_needed(run: Run, reading: RoundsTo) -> int | None:
    """The rounds until a run reached the target; None if it did not."""
    target = Target(TARGETED, reading.target)
    run.check_target(target, reading.interpolated)
    if not reading.interpolated:
        return round_reached(run.rows, target)
    crossing = interpolated(evaluated_rounds(run.rows), series(run.rows, TARGETED), target)
    return None if crossing is None else math.ceil(round(crossing, 9))  # 101.00000000000001 is 101


def value(cell: Cell, reading: ValueAt, runs: Sequence[Run]) -> Measurement:
    """A metric in the paper's round, or in the last one of runs that are shorter."""
    last = [evaluated_rounds(run.rows)[-1] for run in runs]
    published = reading.at(cell)
    read_at = [end if published is None else min(published, end) for end in last]
    rows = [
        next((row for row in run.rows if row["round"] == round), None) for run, round in zip(runs, read_at, strict=True)
    ]
    factor = 100.0 if cell.unit == "%" else 1.0
    values = [finite(row.get(reading.key(cell))) for row in rows if row is not None]
    known = [factor * number for number in values if number is not None]
    early = None if published is None or min(read_at) == published else min(read_at)
    if len(known) < len(runs):
        return Measurement(wording.ABSENT, None, early=early)
    mean, std, places = statistics.mean(known), deviation(known), cell.decimals
    text = f"{mean:.{places}f}" if std is None else f"{mean:.{places}f} ± {std:.{places}f}"
    return Measurement(text, mean, std, early)


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of some values (ddof 0); None if there is one value."""
    return statistics.pstdev(values) if len(values) > 1 else None
