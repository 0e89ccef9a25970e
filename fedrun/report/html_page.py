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

from fedrun.report import quantities
from fedrun.report.quantities import Quantity
from fedrun.report.runs import Run
from fedrun.report.settings import WHO_HOLDS, Setting, by_short_key, comparable_text, differing, written
from fedrun.report.table import Table, html
from fedrun.runs.display import wording
from fedrun.runs.display.curves import AXES, Against, recorded, spent
from fedrun.runs.folder import FEDERATION
from fedrun.runs.metrics_file import evaluated_rounds

FOLDER = Path(__file__).parent / "page"
POINTS = 400
"""A curve with more points than this is drawn at evenly spaced ones."""


def page(title: str, tables: Sequence[Table], settings: Sequence[Setting], targets: Sequence[float] = ()) -> str:
    """The page.

    Args:
        title: its heading.
        tables: shown unchanged; the page sorts and filters their rows.
        settings: the settings whose curves and federations are shown; unfinished runs only where no seed is complete.
        targets: accuracies to be marked, in addition to the runs' own targets.
    """
    metrics = quantities.metrics(run for setting in settings for run in setting.runs)
    note = (
        "A curve is the mean over its runs, with a band of ± one standard deviation (ddof 0), in the rounds that all "
        "of them evaluated. A gap: not every run has a finite value."
    )
    if any(run.adaptive for setting in settings for run in setting.runs):
        note += " Where an adaptive evaluation stopped early, accuracies are estimates."
    if any(len(run.rows) > POINTS for setting in settings for run in setting.runs):
        note += f" Of longer runs at most {POINTS} evenly spaced rounds are drawn."
    note += " Drag: zoom or pan; double click: whole range; Ctrl and wheel: zoom."
    template = Template((FOLDER / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        plot=(FOLDER / "plot.js").read_text(encoding="utf-8"),
        script=(FOLDER / "page.js").read_text(encoding="utf-8"),
        tables="\n".join([*map(html, tables), federations(settings)]),
        curves_note=escape(note),
        data=embedded(curve_data(settings, metrics, targets)),
    )


def embedded(content: Any) -> str:
    """JSON for a script element: nothing in it can end the element."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def curve_data(settings: Sequence[Setting], metrics: Sequence[str], targets: Sequence[float] = ()) -> dict[str, Any]:
    """What the page's script draws: a record per run, so that the reader can choose which runs make a curve."""
    runs = [(setting, run) for setting in settings for run in setting.drawn]
    marked = quantities.targets([run for _, run in runs], targets)
    keys = grouping_keys(settings)
    every = math.gcd(*(round for _, run in runs for round in evaluated_rounds(run.rows)[1:-1])) or 1
    last = max((run.last_round for _, run in runs), default=0)
    step = every * -(-(last // every + 1) // POINTS)
    axes = [against for against in AXES if any(finite_positions(run, against) for _, run in runs)]
    return {
        "axes": {against: AXES[against] for against in axes},
        "keys": keys,
        "metrics": [
            {
                "key": key,
                "name": wording.name(key),
                "share": wording.is_share(key),
                "loss": wording.is_loss(key),
                "targets": [{"share": t.value, "name": wording.target(t)} for t in marked if t.metric == key],
            }
            for key in metrics
        ],
        "runs": [
            {
                "values": values_of(keys, setting, run),
                **run_data(run, metrics, axes, step),
            }
            for setting, run in runs
        ],
    }


def grouping_keys(settings: Sequence[Setting]) -> list[str]:
    """The keys by which the page groups runs: the setting, and those of dataset, strategy, short configuration keys and
    seed that differ.
    """
    chosen = [key for key in ("dataset", "strategy") if len({getattr(setting, key) for setting in settings}) > 1]
    seeds = {run.seed for setting in settings for run in setting.drawn}
    return ["setting", *chosen, *by_short_key(differing(settings), {}), *(["seed"] if len(seeds) > 1 else [])]


def values_of(keys: Sequence[str], setting: Setting, run: Run) -> dict[str, str]:
    """A run's values of the keys that it is grouped by."""
    own = {"setting": setting.name, "dataset": run.dataset, "strategy": run.strategy, "seed": str(run.seed)}
    full = by_short_key(list(setting.leaves), setting.leaves)
    return {key: own[key] if key in own else written(setting.leaves, full.get(key, key)) for key in keys}


def finite_positions(run: Run, against: Against) -> bool:
    """Whether a run recorded this cost at all."""
    return any(math.isfinite(place) for place in spent(run.rows, against))


def run_data(run: Run, metrics: Sequence[str], axes: Sequence[Against], step: int) -> dict[str, Any]:
    """The curves of one run: rounds, their position on every axis, and every metric at some of them.

    Args:
        run: a run with all its rows.
        metrics: keys of the metrics to show; those that the run did not record are left out.
        axes: the axes other than rounds.
        step: where a metric has more than :data:`POINTS` rounds, multiples of this are shown, and the last one.
    """
    lines = {key: line for key in metrics if any(map(math.isfinite, (line := recorded(run.rows, key)).values()))}
    shown_rounds = {key: thinned(list(line), step) for key, line in lines.items()}
    rounds = sorted({round for points in shown_rounds.values() for round in points})
    place = {round: index for index, round in enumerate(rounds)}
    places = dict(zip(evaluated_rounds(run.rows), range(len(run.rows)), strict=True))
    x = {axis: spent(run.rows, axis) for axis in axes if axis != "rounds"}
    return {
        "rounds": rounds,
        "x": {axis: [short(costs[places[round]]) for round in rounds] for axis, costs in x.items()},
        "metrics": {
            key: {
                **({} if shown_rounds[key] == rounds else {"at": [place[round] for round in shown_rounds[key]]}),
                "y": [short(line[round]) for round in shown_rounds[key]],
                "last": short(Quantity("final", key).of(run)),
                "best": short(Quantity("best", key).of(run)) if quantities.has_best(key) else None,
            }
            for key, line in lines.items()
        },
    }


def thinned(rounds: Sequence[int], step: int) -> list[int]:
    """These rounds; of more than ``POINTS``, the first, the last and the multiples of ``step``.

    The step is the same for all runs, so that runs that are averaged have these rounds in common.
    """
    if len(rounds) <= POINTS:
        return list(rounds)
    return [round for round in rounds if round % step == 0 or round in (rounds[0], rounds[-1])]


def short(number: float | None) -> float | int | None:
    """Six significant digits; None for a number that JSON cannot express."""
    if number is None or not math.isfinite(number):
        return None
    rounded = float(f"{number:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def federations(settings: Sequence[Setting]) -> str:
    """The heat map of every different federation, from the folder of the first run that has one."""
    figures: dict[str, tuple[Path, list[str]]] = {}
    for setting in settings:
        federation = comparable_text({key: value for key, value in setting.leaves.items() if key.startswith(WHO_HOLDS)})
        picture = next((path for run in setting.runs if (path := run.folder / FEDERATION).is_file()), None)
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
