"""Curves of chosen metrics in panels, against rounds or a cost, next to a paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    finish,
    look_of,
    mark_targets,
    remarked,
)
from fedrun.runs.display.picture_file import save_figure
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        published: the paper's numbers for this setting, drawn against rounds only.
    """

    seeds: Seeds
    published: tuple[Published, ...] = ()


def plot_panels(
    panels: Mapping[tuple[str, str], Mapping[str, Line]],
    path: Path,
    against: Against,
    title: str = "",
    targets: Sequence[Target] = (),
) -> None:
    """Draw a panel for each metric of some runs, and write them as one picture.

    Args:
        panels: lines by their labels, for each pair of a metric's key and a panel's title.
        path: the file to write, in the format of its suffix; its folder exists.
        against: what the curves are drawn against.
        title: the figure's title, of one or several lines.
        targets: marked by a line in the panels of their metric.

    Raises:
        InputError: there is nothing to draw.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    curves = {
        place: {
            label: drawn for label, line in lines.items() if (drawn := curve(line.seeds, place[0], against)) is not None
        }
        for place, lines in panels.items()
    }
    curves = {place: lines for place, lines in curves.items() if lines}
    if not curves:
        keys = ", ".join(dict.fromkeys(key for key, _ in panels))
        raise InputError(f"{keys} against {against}: no run has both in any round")
    columns = min(2 if len(curves) <= 4 else 3, len(curves))
    rows = math.ceil(len(curves) / columns)
    engine = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    size = (7.2, 4.6) if len(curves) == 1 else (0.6 + 3.9 * columns, 1.3 + 2.8 * rows)
    figure = Figure(figsize=size, layout=engine)
    looks = {
        label: look_of(number)
        for number, label in enumerate(dict.fromkeys(label for lines in curves.values() for label in lines))
    }
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (place, lines) in zip(grid, curves.items(), strict=False):
        key, heading = place
        for label, line in lines.items():
            draw(axes, line, key, label, looks[label], alone=len(lines) == 1)
        finish(
            axes,
            remarked(f"{heading} (%)" if wording.is_share(key) else heading, lines.values()),
            AXES[against],
            logarithmic=wording.is_loss(key),
        )
        for label in lines if against == "rounds" else ():
            mark_published(axes, panels[place][label].published, key, looks[label])
        mark_targets(axes, [target for target in targets if target.metric == key])
    for axes in grid[len(curves) :]:
        axes.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=10, color=INK, parse_math=False)
    add_legend(figure)
    save_figure(figure, path, dpi=160)


def mark_published(axes: Axes, published: Sequence[Published], key: str, look: Look) -> None:
    """Hollow stars with the deviations that the paper gives, in the line's colour."""
    factor = 100.0 if wording.is_share(key) else 1.0
    for point in published:
        axes.errorbar(
            point.round,
            factor * point.value,
            xerr=point.round_std or None,
            yerr=factor * point.value_std or None,
            color=look.colour,
            marker="*",
            markersize=9,
            markerfacecolor="white",
            capsize=3,
            linewidth=1.2,
            zorder=3,
        )
    if published:
        axes.scatter([], [], marker="*", s=80, facecolor="white", edgecolor=INK, label="the paper")
