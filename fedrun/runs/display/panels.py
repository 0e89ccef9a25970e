"""Curves of chosen metrics in panels, against rounds or a cost, next to a paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.data.targets import Target
from fedrun.runs.display import wording
from fedrun.runs.display.curves import (
    AXES,
    INK,
    Against,
    Look,
    Seeds,
    add_legend,
    curve,
    draw,
    explain_dashes,
    finish,
    interpolated,
    look_of,
    mark_targets,
    panels_of,
    remarked,
)
from fedrun.runs.display.picture_file import save_figure
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

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
        label: look_of(number)
        for number, label in enumerate(dict.fromkeys(label for lines in panels.values() for label in lines))
    }
    columns = min(2 if len(drawn) <= 4 else 3, max(len(drawn), 1))
    rows = max(math.ceil(len(drawn) / columns), 1)
    width, height = (7.2, 4.6) if len(drawn) == 1 else (0.6 + 3.9 * columns, 1.3 + 2.8 * rows)
    figure = Figure(figsize=(width, height))
    alone = len(looks) == 1 and not title
    if not alone:
        figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))  # leaves room for the legend
    else:  # fixed margins in inches, because computing them takes half of the time of drawing
        left, right, bottom, top = 0.55 / width, 1 - 0.12 / width, 0.5 / height, 1 - 0.65 / height
        figure.subplots_adjust(left, bottom, right, top, wspace=0.2, hspace=0.36)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, ((keys, heading), lines) in zip(grid, drawn.items(), strict=False):
        for (key, label), line in lines.items():
            draw(axes, line, key, label, looks[label], alone=len(looks) == 1)
        unit = " (%)" if wording.is_share(keys[0]) else ""
        finish(axes, remarked(f"{heading}{unit}", lines.values()), AXES[against], wording.is_loss(keys[0]))
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
