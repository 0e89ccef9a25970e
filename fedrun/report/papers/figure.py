"""The papers' figures of curves: which runs each one shows, and the drawing.

A figure is described below ``hydra.sweeper.figures`` of the experiment whose runs it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from fedrun.config.allowed_values import in_message
from fedrun.config.config_class import config_class
from fedrun.config.dotted_keys import value_at
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import Scale
from fedrun.config.options import content, option_files
from fedrun.data.evaluation_split import TARGETED
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.described_tables import command_arguments, described, load_table, require_coordinates, tables
from fedrun.report.papers.matching import match
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.paper_table import available
from fedrun.report.papers.readings import RoundsTo, ValueAt, Where
from fedrun.report.papers.table_reading import TableReading
from fedrun.report.quantities import no_such_metric, recorded_keys
from fedrun.report.runs import Run, complete_runs
from fedrun.report.settings import Setting, leaves, settings, varying, written
from fedrun.runs.display import wording
from fedrun.runs.display.curves import Against
from fedrun.runs.display.panels import Line, Published, plot_panels
from fedrun.system.errors import InputError

Panels = Mapping[str, Mapping[str, tuple[Run, ...]]]
"""The runs of each line, by the panel's title and the line's name."""


@config_class
class Figure(Where):
    """A paper's figure.

    Attributes:
        experiment: name of the experiment whose runs are drawn, such as ``turbosvm/table2``; not written in the file.
        title: the figure's title.
        where: which of them: values for each named coordinate of the table's cells; without a table, the same for
            ``dataset``, ``strategy`` and keys of the configuration. Empty: all.
        panels: coordinates; there is a panel for each of their values.
        lines: coordinates that distinguish a panel's lines.
        metrics: such as ``test/accuracy``; there is a panel for each.
        against: the horizontal axis.
        open: what is not known about the figure. Empty: nothing.
    """

    experiment: str
    title: str
    panels: tuple[str, ...]
    lines: tuple[str, ...]
    metrics: Annotated[tuple[str, ...], MinLen(1)]
    against: Against
    open: str

    def run_names(self, scale: Scale) -> list[str]:
        """The ``name`` of the runs from which the figure is drawn at a scale."""
        if has_table(self):
            return load_table(self.experiment).run_names(scale)
        return [experiment_sweep(self.experiment).run_name(scale)]

    def place(self, coordinates: Mapping[str, str]) -> tuple[str, str]:
        """The panel's title and the line's name for some coordinates."""
        panel = ", ".join(f"{key.rpartition('.')[2]} {coordinates.get(key, '')}" for key in self.panels)
        line = " ".join(
            coordinates.get(key, "") if key == "strategy" else f"{key.rpartition('.')[2]}={coordinates.get(key, '')}"
            for key in self.lines
        )
        return panel, line


def figures() -> dict[str, str]:
    """The figures that can be drawn, such as ``turbosvm/figure2``, each with its experiment."""
    experiments = {
        f"{name.partition('/')[0]}/{figure}": name
        for name in option_files("experiment")
        for figure in _descriptions(name)
    }
    return dict(sorted(experiments.items()))


def _descriptions(experiment: str) -> Mapping[str, Any]:
    """The figures described in an experiment's own file, without those of files that it is built on."""
    own = content("experiment", experiment, option_files("experiment")[experiment])
    described = value_at(own, "hydra.sweeper.figures")
    return described if isinstance(described, Mapping) else {}


def load_figure(name: str) -> Figure:
    """A figure.

    Raises:
        InputError: there is none of this name, or its description is damaged.
    """
    experiments = figures()
    if name not in experiments:
        raise InputError(f"figure {name}: no such figure; allowed: {', '.join(experiments)}")
    experiment, figure = experiments[name], name.partition("/")[2]
    where = f"{option_files('experiment')[experiment]}: hydra.sweeper.figures.{figure}"
    if not isinstance(description := _descriptions(experiment)[figure], Mapping):
        raise InputError(f"{where}: {in_message(description)} is not a mapping; allowed: keys such as title and where")
    found = described({**description, "experiment": experiment}, Figure, where)
    if has_table(found):
        cells = load_table(experiment).cells()
        require_coordinates(cells, {"where": found.where, "panels": found.panels, "lines": found.lines}, where)
        for key, values in found.where.items():
            of_cells = dict.fromkeys(cell.coordinates[key] for cell in cells if key in cell.coordinates)
            if unknown := next((value for value in values if value not in of_cells), None):
                allowed = ", ".join(of_cells)
                raise InputError(
                    f"{where}.where.{key}: {unknown} is not a value of the table's cells; allowed: {allowed}"
                )
    return found


def draw_figure(name: str, scale: Scale | None, runs: Sequence[Run], path: Path) -> str:
    """Draw a figure and return what is not known about it.

    Args:
        name: the figure's name.
        scale: the scale whose runs count; None: the largest one with complete runs.
        runs: the runs to choose from.
        path: the file to write, in the format of its suffix; its folder exists.

    Raises:
        InputError: there is no such figure, or there are no complete runs for it.
    """
    figure = load_figure(name)
    panels_of = of_table if has_table(figure) else of_experiment
    for one in available(figure.run_names, runs) if scale is None else [scale]:
        if panels := panels_of(figure, one, runs):
            break
    else:
        arguments = command_arguments(figure.experiment, scale)
        raise InputError(f"figure {name}: no finished runs; start them with: fedrun {arguments}")
    used = [*{id(run): run for lines in panels.values() for line in lines.values() for run in line}.values()]
    if not any(run.draws(metric) for run in used for metric in figure.metrics):
        raise InputError(f"figure {name}: {no_such_metric(figure.metrics[0], recorded_keys(used))}")
    points = published(figure, one, panels) if has_table(figure) else {}
    drawn: dict[tuple[tuple[str, ...], str], Mapping[str, Line]] = {
        ((metric,), ", ".join(filter(None, (wording.name(metric), title)))): {
            line: Line([run.rows for run in own], tuple(points.get((title, line, metric), ())))
            for line, own in lines.items()
        }
        for title, lines in panels.items()
        for metric in figure.metrics
    }
    data, seeds = sorted({run.dataset for run in used}), sorted({run.seed for run in used})
    stand_ins = " with stand-ins for the paper's data or model" * (has_table(figure) and has_stand_ins(figure, one))
    fewer = " (some lines fewer)" * any(len(own) < len(seeds) for lines in panels.values() for own in lines.values())
    caption = f"scale {one}{stand_ins}; data {', '.join(data)}; seeds {', '.join(map(str, seeds))}{fewer}"
    plot_panels(drawn, path, figure.against, f"{figure.title}\n{caption}")
    return figure.open


def has_stand_ins(figure: Figure, scale: Scale) -> bool:
    """Whether some of the figure's lines have substitutes for what the table's coordinates name."""
    reading = load_table(figure.experiment)
    shown = (cell for cell in reading.cells() if figure.holds(cell.coordinates))
    return any(reading.substitutes(cell, scale) for cell in shown)


def has_table(figure: Figure) -> bool:
    """Whether the figure is drawn from a table's runs."""
    return figure.experiment in tables()


def of_table(figure: Figure, scale: Scale, runs: Sequence[Run]) -> Panels:
    """The runs of the figure's lines among those of a table at a scale."""
    table = load_table(figure.experiment).cells()
    own, *further = figure.run_names(scale)
    matched = match(cell_configs(figure.experiment, scale), complete_runs(runs, [own]), complete_runs(runs, further))
    runs_at = [(table[position].coordinates, cell_runs) for position, cell_runs in matched.runs.items() if cell_runs]
    return grouped(figure, runs_at)


def published(figure: Figure, scale: Scale, panels: Panels) -> Mapping[tuple[str, str, str], Sequence[Published]]:
    """The paper's numbers for lines drawn from a table's runs, by panel, line and metric. A setting with stand-ins at
    this scale has none.
    """
    reading = load_table(figure.experiment)
    points: dict[tuple[str, str, str], list[Published]] = {}
    for cell in reading.cells():
        coordinates = cell.coordinates
        selected = all(coordinates.get(key) in values for key, values in figure.where.items() if key != "metric")
        panel, line = figure.place(coordinates)
        if not selected or line not in panels.get(panel, {}) or reading.substitutes(cell, scale):
            continue
        end = max(run.last_round for run in panels[panel][line]) if scale == "full" else None
        for metric in figure.metrics:
            if (point := _point(cell, reading, metric, end)) is not None:
                points.setdefault((panel, line, metric), []).append(point)
    return points


def _point(cell: Cell, reading: TableReading, metric: str, end: int | None) -> Published | None:
    """A cell's number as a point of a metric's curve; None if it is none.

    Args:
        cell: a cell of the table.
        reading: how the table is read from the runs.
        metric: key of the curve's metric.
        end: the last round of the paper's protocol; None if the runs are shorter.
    """
    number, spread = cell.number, cell.std or 0.0
    how = reading.metrics.get(cell.metric)
    if number is None:
        return None
    if isinstance(how, RoundsTo) and metric == TARGETED:
        return Published(number, how.target, round_std=spread)
    if isinstance(how, ValueAt) and how.key(cell) == metric and (round := how.at(cell) or end) is not None:
        unit = 0.01 if cell.unit == "%" else 1.0
        return Published(round, unit * number, value_std=unit * spread)
    return None


def of_experiment(figure: Figure, scale: Scale, runs: Sequence[Run]) -> Panels:
    """The runs of the figure's lines among those of an experiment without a table at a scale."""
    found, _ = settings(complete_runs(runs, figure.run_names(scale)))
    panels = grouped(figure, [(_coordinates(setting), setting.runs) for setting in found])
    for lines in panels.values():
        for name, line in lines.items():
            _check_alike(figure, name, line)
    return panels


def _coordinates(setting: Setting) -> dict[str, str]:
    """A setting's values under their keys, its dataset and its strategy."""
    values = {key: written(setting.leaves, key) for key in setting.leaves}
    return {**values, "dataset": setting.dataset, "strategy": setting.strategy}


def _check_alike(figure: Figure, line: str, runs: Sequence[Run]) -> None:
    """Reject runs of several settings as the seeds of one line."""
    contents = [leaves(run.config) for run in runs]
    if several := varying(contents):
        key = several[0]
        values = " and ".join(dict.fromkeys(written(content, key) for content in contents))
        raise InputError(
            f"experiment={figure.experiment}: the line {line} has runs of several settings, such as {key}={values}; "
            "name the folders of one"
        )


def grouped(figure: Figure, runs_at: Sequence[tuple[Mapping[str, str], Sequence[Run]]]) -> Panels:
    """The runs by panel and line, given the coordinates of each group of runs."""
    panels: dict[str, dict[str, tuple[Run, ...]]] = {}
    for coordinates, runs in runs_at:
        if figure.holds(coordinates):
            panel, line = figure.place(coordinates)
            own = panels.setdefault(panel, {}).get(line, ())
            panels[panel][line] = (*own, *(run for run in runs if run not in own))
    return panels
