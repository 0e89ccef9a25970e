"""One self-contained HTML page: tables, curves to explore, and who held which samples. It needs no network."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from fedrun.data.evaluation_split import TARGETED
from fedrun.report import quantities
from fedrun.report.settings import Setting, identity
from fedrun.report.table import Table, html
from fedrun.runs.display import wording
from fedrun.runs.display.curves import AXES, curve, positions

FOLDER = Path(__file__).parent / "page"
WHO_HOLDS = ("dataset.", "partition.", "population.", "validation.")
"""Sections of the configuration that say who holds which training samples."""

POINTS = 400
"""Most points of a curve on the page."""


def page(title: str, tables: Sequence[Table], settings: Sequence[Setting], targets: Sequence[float] = ()) -> str:
    """The page.

    Args:
        title: its heading.
        tables: shown as they are.
        settings: whose curves and federations are shown, unfinished runs included where no seed is complete.
        targets: accuracies to be marked besides the runs' own.
    """
    metrics = quantities.metrics(run for setting in settings for run in setting.runs)
    note = "Mean over seeds, and a band of ± one standard deviation (ddof 0). A gap: not every seed has a finite value."
    if any(run.adaptive for setting in settings for run in setting.runs):
        note += " Where an adaptive evaluation stopped early, accuracies are estimates."
    if any(len(run.rows) > POINTS for setting in settings for run in setting.runs):
        note += f" Of longer runs {POINTS} evenly spaced rounds are drawn."
    template = Template((FOLDER / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        script=(FOLDER / "page.js").read_text(encoding="utf-8"),
        before="\n".join(map(html, tables[:1])),
        after="\n".join([*map(html, tables[1:]), federations(settings)]),
        curves_note=escape(note),
        data=embedded(curve_data(settings, metrics, targets)),
    )


def embedded(content: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def curve_data(settings: Sequence[Setting], metrics: Sequence[str], targets: Sequence[float] = ()) -> dict[str, Any]:
    """What the page's script draws."""
    runs = [run for setting in settings for run in setting.runs]
    marked = [float(target.key) for target in quantities.targets(runs, targets)]
    return {
        "axes": AXES,
        "metrics": [
            {
                "key": key,
                "name": wording.name(key),
                "share": wording.is_share(key),
                "loss": wording.is_loss(key),
                "targets": marked if key == TARGETED else [],
            }
            for key in metrics
        ],
        "settings": [setting_data(setting, metrics) for setting in settings],
    }


def setting_data(setting: Setting, metrics: Sequence[str]) -> dict[str, Any]:
    """The curves of one setting: rounds, their place on every axis, and every metric's mean and std at some of them."""
    seeds = [run.rows for run in setting.drawn]
    curves = {key: line for key in metrics if (line := curve(seeds, key)) is not None}
    points = {key: thinned(len(line.rounds)) for key, line in curves.items()}
    rounds = sorted({round for key, line in curves.items() for round in line.rounds[points[key]].tolist()})
    place = {round: index for index, round in enumerate(rounds)}
    return {
        "name": setting.name,
        "seeds": [run.seed for run in setting.drawn],
        "rounds": rounds,
        "x": {against: list(map(short, positions(seeds, rounds, against))) for against in AXES},
        "metrics": {
            key: {
                "at": [place[round] for round in line.rounds[points[key]].tolist()],
                "mean": list(map(short, line.mean[points[key]].tolist())),
                "std": list(map(short, line.std[points[key]].tolist())),
            }
            for key, line in curves.items()
        },
    }


def thinned(points: int) -> np.ndarray:
    """The numbers of so many points of a curve, or of ``POINTS`` evenly spaced ones among them: int64."""
    return np.unique(np.linspace(0, points - 1, min(POINTS, points)).round().astype(int))


def short(number: float) -> float | None:
    """Seven significant digits; None for what JSON does not know."""
    return float(f"{number:.7g}") if math.isfinite(number) else None


def federations(settings: Sequence[Setting]) -> str:
    """The heat map of every different federation, from the folder of the first run that has one."""
    figures: dict[str, tuple[Path, list[str]]] = {}
    for setting in settings:
        federation = identity({key: value for key, value in setting.leaves.items() if key.startswith(WHO_HOLDS)})
        picture = next((path for run in setting.runs if (path := run.folder / "federation.png").is_file()), None)
        if federation in figures:
            figures[federation][1].append(setting.name)
        elif picture is not None:
            figures[federation] = (picture, [setting.name])
    if not figures:
        return ""
    shown = "".join(
        f'<figure><img alt="training samples of each label and client" src="data:image/png;base64,'
        f'{base64.b64encode(picture.read_bytes()).decode()}">'
        f'<figcaption class="note">{escape(", ".join(names))}; {escape(picture.parent.name)}</figcaption></figure>\n'
        for picture, names in figures.values()
    )
    return f"<section>\n<h2>Who held which samples</h2>\n{shown}</section>"
