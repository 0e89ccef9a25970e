"""Curves of runs' metrics against rounds or costs."""

from __future__ import annotations

import math
import operator
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedrun.data.evaluation_split import pooled_names
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import ESTIMATE, measures
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.experiment.observer import Row, round_of
from fedrun.runs.display import wording
from fedrun.runs.metrics_file import evaluated_rounds, series

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """The cumulative cost of a run at each of its rows; NaN if it was not recorded.

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
            return series(rows, "privacy/epsilon")
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


@dataclass(frozen=True)
class Look:
    """How one label is drawn. The marker distinguishes it without colours: in print, or for the colour-blind."""

    colour: str
    marker: str


# Okabe and Ito's palette, which people with any common colour blindness can distinguish; without its yellow, which is
# too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "X")  # one fewer than the colours: 42 labels before a pair of them is repeated
INK, GRID = "#333333", "#DDDDDD"

NAME_HEIGHT = 0.06
"""The height of a target's name, as a share of its panel's."""


def panels_of(rows: Iterable[Row]) -> list[tuple[str, tuple[str, ...]]]:
    """Title of each panel and the metrics in it: the task's metrics, the losses, GM-Appeal."""
    groups = [pooled_names(measure) for measure in measures(key for row in rows for key in row)]
    groups += [(*pooled_names("loss"), "train/loss"), ("clients/gm_appeal",)]
    return [(wording.name(keys[0].rpartition("/")[2]), keys) for keys in groups]


def add_legend(figure: Figure) -> None:
    """A legend below the panels with every label of any panel, in at most 4 columns; none without a label.

    Long labels are wrapped, and the figure grows by the legend's lines. A ``$`` in a label does not begin a formula.
    """
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    width, height = figure.get_size_inches()
    mark, letter, line = 0.55, 0.085, 0.2  # in inches, at this font size
    longest = max(1, int(width / letter - mark / letter))
    wrapped = [textwrap.fill(label, longest) for label in handles]
    lines = [text.splitlines() for text in wrapped]
    columns = max(
        1, min(len(wrapped), 4, int(width / (mark + letter * max(len(one) for text in lines for one in text))))
    )
    rows = math.ceil(len(wrapped) / columns)
    column_lines = [sum(map(len, lines[first : first + rows])) for first in range(0, len(lines), rows)]
    figure.set_size_inches(width, height + line * (max(column_lines) - 1))
    legend = figure.legend(
        list(handles.values()), wrapped, loc="outside lower center", ncols=columns, frameon=False, fontsize=10
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def remarked(title: str, curves: Iterable[Curve]) -> str:
    """A panel's title, with a remark if some of its values are estimates."""
    return f"{title}, partly estimated" if any(curve.estimated for curve in curves) else title


def look_of(number: int) -> Look:
    """How the label with this number is drawn."""
    return Look(COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])


def draw(axes: Axes, curve: Curve, key: str, label: str, look: Look, alone: bool) -> None:
    """One line and its band, with about ten markers; a long line that is ``alone`` has none."""
    factor = 100.0 if wording.is_share(key) else 1.0
    mean, std = factor * curve.mean, factor * curve.std
    train = key.startswith("train/")
    points = len(curve.rounds)
    axes.plot(
        curve.x,
        mean,
        color=look.colour,
        linestyle="--" if train else "-",
        linewidth=1.6,
        marker="" if alone and points > 20 else look.marker,
        markersize=3.5,
        markevery=max(1, points // 10),
        markerfacecolor="white" if train else look.colour,
        label=label,
    )
    if np.nanmax(std) > 0:
        axes.fill_between(curve.x, mean - std, mean + std, color=look.colour, alpha=0.18, linewidth=0)


def finish(axes: Axes, title: str, label: str, logarithmic: bool) -> None:
    """Title, ticks and grid; ``logarithmic`` allows such an axis, for values that span more than two decades."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_title(title, fontsize=10, color=INK, loc="left", parse_math=False)
    axes.set_xlabel(label, fontsize=9, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=label == AXES["rounds"], nbins=6, steps=[1, 2, 5, 10]))
    if label in (AXES["params"], AXES["bytes"], AXES["upload"], AXES["samples"]):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_tick_params(labelbottom=True)
    axes.tick_params(labelsize=8, colors=INK, length=3)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines])
    values = values[np.isfinite(values)]
    if logarithmic and values.min() > 0 and values.max() > 100 * values.min():
        axes.set_yscale("log")


def mark_targets(axes: Axes, targets: Sequence[Target]) -> None:
    """A dotted line for each target, named at the left edge, where most curves are still far from it.

    Targets whose names would lie on one another share a place.
    """
    logarithmic = axes.get_yscale() == "log"
    places = {
        wording.target(target): target.value * (100 if wording.is_share(target.metric) else 1)
        for target in sorted(targets, key=lambda target: target.value)
        if target.value > 0 or not logarithmic
    }
    for place in places.values():
        axes.axhline(place, color=INK, linewidth=0.9, linestyle=":", zorder=1)
    scaled = math.log10 if logarithmic else float
    bottom, top = map(scaled, axes.get_ylim())
    groups: list[list[str]] = []
    for name, place in places.items():
        if groups and scaled(place) - scaled(places[groups[-1][-1]]) < NAME_HEIGHT * (top - bottom):
            groups[-1].append(name)
        else:
            groups.append([name])
    for group in groups:
        near_top = scaled(places[group[-1]]) > top - 0.1 * (top - bottom)  # below the lines, as the title is above them
        axes.annotate(
            ", ".join(group),
            xy=(0.0, places[group[0 if near_top else -1]]),
            xycoords=("axes fraction", "data"),
            xytext=(3, -2 if near_top else 2),
            textcoords="offset points",
            ha="left",
            va="top" if near_top else "bottom",
            fontsize=8,
            color=INK,
            parse_math=False,
        )


def explain_dashes(axes: Axes, parts: Sequence[str]) -> None:
    """A legend for the two kinds of line, if both are drawn: dashed for ``train``, solid for the other parts."""
    from matplotlib.lines import Line2D

    held_out = " or ".join(part for part in parts if part != "train")
    if not held_out or "train" not in parts:
        return
    kinds = [Line2D([], [], color=INK, linestyle=style, linewidth=1.4) for style in ("-", "--")]
    axes.legend(kinds, [held_out, "train"], frameon=False, fontsize=8)
