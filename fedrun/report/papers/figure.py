"""The papers' figures that are curves: which runs each is drawn from, and the drawing.

A figure is a YAML file ``papers/PAPER/figureN.yaml``. Most are drawn from the runs of a table; a few have a sweep of
their own, ``experiment=PAPER/figureN``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedrun.config.config_class import config_class
from fedrun.report.papers.paper import FOLDER
from fedrun.report.papers.paper_table import available, match
from fedrun.report.papers.protocol import SCALES, Scale, Where, asked_with, described, named, plan, protocols
from fedrun.report.papers.protocol import load as load_table
from fedrun.report.runs import Run
from fedrun.report.settings import leaves, varying, written
from fedrun.runs.display import wording
from fedrun.runs.display.curves import Against, Seeds, plot_panels
from fedrun.system.errors import InputError

Panels = Mapping[str, Mapping[str, Sequence[Run]]]
"""The runs of each line, under the line's name and the panel's title."""


@config_class
class Figure(Where):
    """A paper's figure.

    Attributes:
        title: of the figure.
        runs: the table whose runs are drawn, such as ``turbosvm/table2``; or an experiment without a table.
        where: which of them: for each named coordinate of the table's cells its values; without a table, the same for
            ``dataset``, ``strategy`` and keys of the configuration. Empty: all.
        panels: coordinates for each of whose values there is a panel.
        lines: coordinates that tell a panel's lines apart.
        metrics: of each of which there is a panel of its own, such as ``test/accuracy``.
        against: the other axis.
        open: what is not known of the figure; part of no sentence. Empty: nothing.
    """

    title: str
    runs: str
    panels: tuple[str, ...]
    lines: tuple[str, ...]
    metrics: tuple[str, ...]
    against: Against
    open: str


def figures() -> list[str]:
    """The figures that can be drawn, such as ``turbosvm/figure2``."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/figure*.yaml"))


def load(name: str) -> Figure:
    """A figure.

    Raises:
        InputError: there is none of this name, or its file is damaged.
    """
    if name not in figures():
        raise InputError(f"figure {name}: no such figure; allowed: {', '.join(figures())}")
    return described(FOLDER / f"{name}.yaml", Figure)


def draw_figure(name: str, scale: Scale | None, runs: Sequence[Run], path: Path) -> str:
    """Draw a figure as a PNG; what is not known of it.

    Args:
        name: of the figure.
        scale: whose runs count; None: the largest one with complete runs.
        runs: where to look for them.
        path: the PNG to write; its folder exists.

    Raises:
        InputError: there is no such figure, or there are no complete runs for it.
    """
    figure = load(name)
    found, scale = (of_table if has_table(figure) else of_experiment)(figure, scale, runs)
    if not found:
        asked = asked_with(figure.runs, scale)
        raise InputError(f"figure {name}: no finished run for it was found; make them with: fedrun {asked}")
    used = {id(run): run for lines in found.values() for own in lines.values() for run in own}.values()
    drawn: dict[tuple[str, str], Mapping[str, Seeds]] = {
        (metric, ", ".join(filter(None, (wording.name(metric), title)))): {
            line: [run.rows for run in own] for line, own in lines.items()
        }
        for title, lines in found.items()
        for metric in figure.metrics
    }
    data, seeds = sorted({run.dataset for run in used}), sorted({run.seed for run in used})
    caption = f"scale {scale}; data {', '.join(data)}; seeds {', '.join(map(str, seeds))}"
    plot_panels(drawn, path, figure.against, figure.title, caption)
    return figure.open


def has_table(figure: Figure) -> bool:
    """Whether the figure is drawn from a table's runs."""
    return figure.runs in protocols()


def of_table(figure: Figure, scale: Scale | None, runs: Sequence[Run]) -> tuple[Panels, Scale | None]:
    """The runs of the figure's lines among those of a table, and their scale."""
    protocol = load_table(figure.runs)
    table = protocol.cells()
    for one in available(figure.runs, runs) if scale is None else [scale]:
        configs = {position: leaves(config) for position, config in plan(figure.runs, protocol, one).items()}
        name = protocol.run_name(one)
        matched = match(configs, [run for run in runs if run.complete and run.config["name"] == name])
        served = [(table[position].coordinates, own) for position, own in matched.runs.items() if own]
        if found := arranged(figure, served):
            return found, one
    return {}, scale


def of_experiment(figure: Figure, scale: Scale | None, runs: Sequence[Run]) -> tuple[Panels, Scale | None]:
    """The runs of the figure's lines among those of an experiment without a table, and their scale."""
    for one in SCALES if scale is None else [scale]:
        name = named(figure.runs, one)
        served = []
        for run in runs:
            if run.complete and run.config["name"] == name:
                content = leaves(run.config)
                told = {key: written(content, key) for key in content}
                served.append(({**told, "dataset": run.dataset, "strategy": run.strategy}, [run]))
        if served:
            panels = arranged(figure, served)
            for lines in panels.values():
                for line, own in lines.items():
                    _check_alike(figure, line, own)
            return panels, one
    return {}, scale


def _check_alike(figure: Figure, line: str, runs: Sequence[Run]) -> None:
    """Refuse to draw runs of several settings as the seeds of one line."""
    contents = [leaves(run.config) for run in runs]
    if several := varying(contents):
        key = several[0]
        values = " and ".join(dict.fromkeys(written(content, key) for content in contents))
        raise InputError(
            f"figure {figure.runs}: the line {line} has runs of several settings, such as {key}={values}; name the "
            "folders of one"
        )


def arranged(figure: Figure, served: Sequence[tuple[Mapping[str, str], Sequence[Run]]]) -> Panels:
    """Runs with their coordinates, by panel and line."""
    found: dict[str, dict[str, list[Run]]] = {}
    for coordinates, runs in served:
        if figure.holds(coordinates):
            panel = ", ".join(f"{key.rpartition('.')[2]} {coordinates.get(key, '')}" for key in figure.panels)
            line = " ".join(
                coordinates.get(key, "")
                if key == "strategy"
                else f"{key.rpartition('.')[2]}={coordinates.get(key, '')}"
                for key in figure.lines
            )
            own = found.setdefault(panel, {}).setdefault(line, [])
            own += [run for run in runs if run not in own]
    return found
