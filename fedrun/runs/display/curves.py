"""Curves of runs' metrics against rounds or costs."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from fedrun.data.tasks.metric_names import ESTIMATE
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.experiment.observer import Row, round_of
from fedrun.runs.metrics_file import evaluated_rounds, series

Seeds = Sequence[Sequence[Row]]
"""The rows of several runs that differ in nothing but their seed."""


Against = Literal["rounds", "params", "bytes", "upload", "samples", "seconds", "virtual", "epsilon"]

AXES: Mapping[Against, str] = {
    "rounds": "round",
    "params": "parameters sent, up and down",
    "bytes": "bytes sent, up and down",
    "upload": "bytes uploaded",
    "samples": "client samples trained on",
    "seconds": "seconds of training",
    "virtual": "virtual seconds on the clients' devices",
    "epsilon": "privacy loss ε",
}
"""The possible x-axes of a curve, and their labels."""


def spent(rows: Sequence[Row], against: Against) -> list[float]:
    """The cumulative cost of a run at each of its rows; NaN if it was not recorded, or is infinite in the end.

    A row has the time of its own round only. The rounds since the previous row are assumed to be equally long.
    """
    evaluated = evaluated_rounds(rows)
    match against:
        case "params":
            return list(map(operator.add, series(rows, "cost/params_up"), series(rows, "cost/params_down")))
        case "bytes":
            return list(map(operator.add, series(rows, "cost/bytes_up"), series(rows, "cost/bytes_down")))
        case "upload":
            return series(rows, "cost/bytes_up")
        case "epsilon":
            losses = series(rows, "privacy/epsilon")
            # without noise ε is 0 before the first round and infinite from then on
            return losses if any(loss > 0 for loss in losses) else [math.nan] * len(losses)
        case "samples":
            return series(rows, "cost/client_samples")
        case "virtual":
            return series(rows, VIRTUAL_SECONDS)
        case "seconds":
            times = series(rows, "time/round_s")
            counts = map(operator.sub, evaluated, [0, *evaluated])
            return list(accumulate(count * time if count else 0.0 for count, time in zip(counts, times, strict=True)))
    return [float(round) for round in evaluated]


@dataclass(frozen=True)
class Curve:
    """A metric against rounds or a cost, over the seeds of one label.

    If an adaptive evaluation stopped early, its estimate of the accuracy replaces the accuracy.

    Attributes:
        rounds: int64 ``[r]``, the rounds in which a seed has the metric, without those in which another seed has a row
            that lacks it.
        x: float64 ``[r]``, the rounds, or the mean cost of the seeds up to each round; ascending, NaN if a seed has
            no such round.
        mean: float64 ``[r]``; NaN (a gap in the line) where not all seeds have a finite value, because the mean over
            the other seeds would be too good, or where the sum of the values overflows.
        std: float64 ``[r]``, with ddof 0.
        estimated: whether some values are estimates.
    """

    rounds: np.ndarray
    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    estimated: bool


def curve(seeds: Seeds, key: str, against: Against = "rounds") -> Curve | None:
    """The curve of a metric; None if no round has a finite value and position in all seeds."""
    if not seeds:
        return None
    runs = [recorded(rows, key) for rows in seeds]
    lacking = {row["round"] for rows, run in zip(seeds, runs, strict=True) for row in rows if row["round"] not in run}
    rounds = sorted({round for run in runs for round in run} - lacking)
    values = np.array([[run.get(round, math.nan) for round in rounds] for run in runs], dtype=np.float64)
    values = values.reshape(len(runs), len(rounds))
    x = positions(seeds, rounds, against)
    complete = np.isfinite(values).all(axis=0) & np.isfinite(x)
    finite = np.where(complete, values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = finite.mean(axis=0), finite.std(axis=0)
        complete &= np.isfinite(mean + std)  # sums of huge values overflow
    if not complete.any():
        return None
    estimated = any(f"{key}{ESTIMATE}" in row for rows in seeds for row in rows)
    return Curve(np.array(rounds), x, np.where(complete, mean, np.nan), np.where(complete, std, np.nan), estimated)


def recorded(rows: Sequence[Row], key: str) -> dict[int, float]:
    """A metric by round; NaN if it was recorded as null, the estimate if it was only estimated."""
    values = {}
    for row in rows:
        if (name := key if key in row else f"{key}{ESTIMATE}") in row:
            value = row[name]
            values[round_of(row)] = math.nan if value is None else float(value)
    return values


def positions(seeds: Seeds, rounds: Sequence[float], against: Against) -> np.ndarray:
    """The position of each round on the axis: float64 ``[r]``."""
    if against == "rounds":
        return np.array(rounds, dtype=np.float64)
    runs = [dict(zip((row["round"] for row in rows), spent(rows, against), strict=True)) for rows in seeds]
    places = np.array([[run.get(round, math.nan) for round in rounds] for run in runs], dtype=np.float64)
    return np.asarray(places.mean(axis=0))


def interpolated(seeds: Seeds, rounds: Sequence[float], against: Against) -> np.ndarray:
    """The position of any rounds on the axis: float64 ``[r]``. On the axis of a cost it is interpolated between rows;
    NaN after the last one.
    """
    if against == "rounds":
        return np.array(rounds, dtype=np.float64)
    known = sorted(set.intersection(*({round_of(row) for row in rows} for rows in seeds)))
    places = positions(seeds, known, against)
    return np.asarray(np.interp(rounds, known, places, left=math.nan, right=math.nan))
