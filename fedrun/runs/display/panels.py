"""Curves of chosen metrics in panels, against rounds or a cost, next to a paper's numbers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrun.data.evaluation_split import pooled_names
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import measures
from fedrun.experiment.observer import Row
from fedrun.runs.display import wording
from fedrun.runs.display.curves import AXES, Against, Curve, Seeds, curve, interpolated
from fedrun.runs.display.picture_file import save_figure
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


PROTOCOL: Collection[Against] = ("rounds", "params", "bytes", "upload", "samples")
"""The axes on which the protocol determines where a round is, so that a paper's number of a round has a place."""


@dataclass(frozen=True)
class Published:
    """A paper's number: a metric's value in a round.

    Attributes:
        round: the value's round.
        value: the value, in the metric's unit; accuracies are shares.
        round_std: standard deviation of the round; 0 if it is not known.
        value_std: standard deviation of the value; 0 if it is not known.
    """

    round: float
    value: float
    round_std: float = 0.0
    value_std: float = 0.0


@dataclass(frozen=True)
class Line:
    """A line of a panel.

    Attributes:
        seeds: the rows of our runs.
        published: the paper's numbers for this setting, drawn against :data:`PROTOCOL` only.
    """

    seeds: Seeds
    published: tuple[Published, ...] = ()


def plot_panels(
    panels: Mapping[tuple[tuple[str, ...], str], Mapping[str, Line]],
    path: Path,
    against: Against = "rounds",
    title: str = "",
    targets: Sequence[Target] = (),
    empty: str = "",
) -> None:
    """Draw panels of curves, and write them as one picture.

    Args:
        panels: lines by their labels, for each pair of a panel's metrics and its title.
        path: the file to write, in the format of its suffix; its folder exists.
        against: what the curves are drawn against.
        title: the figure's title, of one or several lines; empty: the label, if there is one only.
        targets: marked by a line in the panels of their metric.
        empty: the text of a picture without any curve; empty: this is an error.

    Raises:
        InputError: there is nothing to draw.
    """
    drawn = {
        place: {
            (key, label): line
            for key in place[0]
            for label, ours in lines.items()
            if (line := curve(ours.seeds, key, against)) is not None
        }
        for place, lines in panels.items()
    }
    drawn = {place: lines for place, lines in drawn.items() if lines}
    if not (drawn or empty):
        sought = ", ".join(dict.fromkeys(key for keys, _ in panels for key in keys))
        raise InputError(f"{sought} against {against}: no run has both in any round")
    looks = {
        label: Look(COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
        for number, label in enumerate(dict.fromkeys(label for lines in panels.values() for label in lines))
    }
    alone = len(looks) == 1 and not title
    figure, grid = empty_panels(len(drawn), with_legend=not alone)
    for axes, ((keys, heading), lines) in zip(grid, drawn.items(), strict=False):
        for (key, label), line in lines.items():
            draw(axes, line, key, label, looks[label], alone=len(looks) == 1)
        unit = " (%)" if wording.is_share(keys[0]) else ""
        remark = ", partly estimated" if any(line.estimated for line in lines.values()) else ""
        finish(axes, f"{heading}{unit}{remark}", AXES[against], wording.is_loss(keys[0]))
        for key, label in lines if against in PROTOCOL else ():
            mark_published(axes, panels[keys, heading][label], key, against, looks[label])
        mark_targets(axes, [target for target in targets if target.metric in keys])
        explain_dashes(axes, list(dict.fromkeys(key.partition("/")[0] for key, _ in lines)))
    for axes in grid[len(drawn) :]:
        axes.set_axis_off()
    if not drawn:
        grid[0].text(0.5, 0.5, empty, ha="center", va="center", color=INK)
    if title or alone:
        figure.suptitle(title or next(iter(looks)), fontsize=10, color=INK, parse_math=False)
    if not alone:
        add_legend(figure)
    save_figure(figure, path, dpi=160)


def empty_panels(count: int, with_legend: bool) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of this many panels or more, and these."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(2 if count <= 4 else 3, max(count, 1))
    rows = max(math.ceil(count / columns), 1)
    width, height = (7.2, 4.6) if count == 1 else (0.6 + 3.9 * columns, 1.3 + 2.8 * rows)
    figure = Figure(figsize=(width, height))
    if with_legend:
        figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))  # leaves room for the legend
    else:  # fixed margins in inches, because computing them takes half of the time of drawing
        left, right, bottom, top = 0.55 / width, 1 - 0.12 / width, 0.5 / height, 1 - 0.65 / height
        figure.subplots_adjust(left, bottom, right, top, wspace=0.2, hspace=0.36)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def plot_curves(runs: Mapping[str, Seeds], path: Path, targets: Sequence[Target]) -> None:
    """Draw a panel for each recorded metric against rounds.

    Args:
        runs: rows of one or several seeds, by label; several become their mean and a band of ± one standard
            deviation (ddof 0).
        path: the file to write; its folder exists.
        targets: marked by a line in the panel of their metric.
    """
    lines = {label: Line(seeds) for label, seeds in runs.items()}
    panels = {
        (keys, title): lines for title, keys in panels_of(row for own in runs.values() for rows in own for row in rows)
    }
    plot_panels(panels, path, targets=targets, empty="no finite metric yet")


def mark_published(axes: Axes, line: Line, key: str, against: Against, look: Look) -> None:
    """Hollow stars with the deviations that the paper gives, in the line's colour.

    On the axis of a cost a star is where our runs are in its round; after their last round it has no place.
    """
    factor = 100.0 if wording.is_share(key) else 1.0
    marked = False
    for point in line.published:
        rounds = [point.round - point.round_std, point.round, point.round + point.round_std]
        start, place, end = interpolated(line.seeds, rounds, against)
        if math.isnan(place):
            continue
        axes.errorbar(
            place,
            factor * point.value,
            xerr=[[place - start], [end - place]] if point.round_std else None,
            yerr=factor * point.value_std or None,
            color=look.colour,
            marker="*",
            markersize=9,
            markerfacecolor="white",
            capsize=3,
            linewidth=1.2,
            zorder=3,
        )
        marked = True
    if marked:
        axes.scatter([], [], marker="*", s=80, facecolor="white", edgecolor=INK, label="the paper")


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
