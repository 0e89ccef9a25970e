"""A paper's table next to ours: our number for each cell, and its difference from the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from fedrun.config.as_config import Plain
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import SCALES, Scale
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.job_values import settings_of_jobs
from fedrun.report.papers.matching import OF_NO_CELL, Matched, match
from fedrun.report.papers.measurement import NOT_RUN, Measurement, measure
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.table_reading import TableReading, ValueAt, command_arguments, load, tables
from fedrun.report.quantities import metrics, no_such_metric
from fedrun.report.runs import Run
from fedrun.report.table import Table
from fedrun.runs.display import wording
from fedrun.system.errors import InputError

OUT_OF_REACH = "out of reach"
OURS = "ours"
PARTS = ("paper", OURS, "difference")


def available(name: str, runs: Sequence[Run]) -> list[Scale]:
    """The scales, largest first, at which there are complete runs of a table's sweep."""
    names = {run.config["name"] for run in runs if run.complete}
    sweep = experiment_sweep(name)
    return [scale for scale in SCALES if sweep.run_name(scale) in names]


class NoRunsError(InputError):
    """There are no complete runs of a table's cells."""


@dataclass(frozen=True)
class PaperTable:
    """A paper's table with our numbers from the runs of one scale.

    Attributes:
        reading: how the table is read.
        scale: the runs' scale.
        cells: all cells of the paper's table.
        measured: our number for each cell that the scale produces, by its position.
        shorter: how many of the published rounds the scale makes, such as ``10 of 50``; empty if it makes all of them.
        tables: the printed tables.
    """

    reading: TableReading
    scale: Scale
    cells: Sequence[Cell]
    measured: Mapping[int, Measurement]
    shorter: str
    tables: tuple[Table, ...]

    @property
    def compared(self) -> list[tuple[Cell, Measurement]]:
        """The cells for which a difference is printed: those with two numbers, on the paper's data and model."""
        pairs = [(self.cells[position], ours) for position, ours in self.measured.items()]
        return [(cell, ours) for cell, ours in pairs if difference(cell, ours) != wording.ABSENT]


def paper_table(name: str, scale: Scale | None, runs: Sequence[Run]) -> PaperTable:
    """A paper's table with our numbers and the differences.

    Args:
        name: the table's name, such as ``turbosvm/table2``.
        scale: the scale whose runs count; None: the largest one with complete runs.
        runs: the runs to choose from.

    Raises:
        InputError: there is no such table.
        NoRunsError: there is no complete run of it.
    """
    load(name)
    no_runs = no_runs_error(name, scale, runs)
    for one in available(name, runs) if scale is None else [scale]:
        try:
            return at_scale(name, one, runs)
        except NoRunsError as error:  # at a scale, all runs may belong to another table that shares them
            no_runs = error
    raise no_runs


def at_scale(name: str, scale: Scale, runs: Sequence[Run]) -> PaperTable:
    """A paper's table with our numbers from the runs of one scale.

    Raises:
        NoRunsError: there is no complete run of it.
    """
    reading = load(name)
    table = reading.cells()
    configs = cell_configs(name, scale)
    if not configs and (cell := next((cell for cell in table if reading.reason(cell) is None), None)):
        raise no_job_error(reading, cell, scale)
    run_name = experiment_sweep(name).run_name(scale)
    sweep_runs = [run for run in runs if run.config["name"] == run_name]
    matched = match(configs, [run for run in sweep_runs if run.complete])
    check_metrics(reading, table, matched)
    if not any(matched.runs.values()):
        problems = " or ".join(problem for problem, others in matched.left_out.items() if others)
        raise (
            NoRunsError(f"table {name}: its finished runs {problems}") if problems else no_runs_error(name, scale, runs)
        )
    unmatched = of_no_table(name, scale, matched.left_out[OF_NO_CELL])
    matched = replace(matched, left_out={**matched.left_out, OF_NO_CELL: unmatched})
    substitutes = {position: reading.substitutes(table[position], scale) for position in configs}
    measured = {
        position: replace(measure(position, table, reading, matched.runs), of_stand_in=bool(substitutes[position]))
        for position in configs
    }
    stand_ins = {
        (key, reading.entries(table[position])[key], overrides): None
        for position in configs
        for key, overrides in substitutes[position].items()
    }
    first, *deviations = provenance(name, scale, matched)
    has_full = scale != "full" and "full" in experiment_sweep(name).scales
    shorter = shorter_rounds(name, configs, matched) if has_full else ""
    above = (
        first,
        *([f"Fewer rounds than at scale full: {shorter}."] if shorter else []),
        *(
            f"In place of {key} {value}, ours ran with {' '.join(overrides)}, so no differences are given."
            for key, value, overrides in stand_ins
        ),
        *deviations,
    )
    unfinished = sum(not run.complete for run in sweep_runs)
    notes = (
        *(
            f"No run has {' or '.join(keys)}, from which {metric} is read."
            for metric, keys in unread(reading, table, matched).items()
        ),
        *omissions(scale, table, reading, measured, matched, unfinished),
        *(note for note in reading.notes.values() if note),
    )
    printed = printed_blocks(reading, table, measured, whole=scale == "full")
    printed[0] = replace(printed[0], above=above)
    printed[-1] = replace(printed[-1], notes=notes)
    return PaperTable(reading, scale, table, measured, shorter, tuple(printed))


def no_job_error(reading: TableReading, cell: Cell, scale: Scale) -> NoRunsError:
    """The error that no job of a table's sweep makes a cell; it compares the first job with a cell."""
    name = reading.experiment
    job = " ".join(one for one in settings_of_jobs(name, scale)[0] if not one.startswith(("experiment=", "scale=")))
    brackets = "; several values of a key are written without brackets, such as 0.1,1.0" if "=[" in job else ""
    return NoRunsError(
        f"table {name}: no job of its sweep makes a cell; the first cell needs "
        f"{' '.join(reading.conditions(cell, scale))}, the first job has {job}{brackets}"
    )


def check_metrics(reading: TableReading, table: Sequence[Cell], matched: Matched) -> None:
    """Reject a table if its runs record none of the metrics that it reads.

    Raises:
        InputError: they do not.
    """
    missing = unread(reading, table, matched)
    run = {position: runs for position, runs in matched.runs.items() if runs}
    if not run or len(missing) < len({table[position].metric for position in run}):
        return
    metric, (key, *_) = next(iter(missing.items()))
    recorded = metrics({id(one): one for runs in run.values() for one in runs}.values())
    raise reading.error(f"metrics.{metric}", no_such_metric(key, recorded))


def unread(reading: TableReading, table: Sequence[Cell], matched: Matched) -> dict[str, tuple[str, ...]]:
    """The metrics of cells with runs that none of these runs records, such as a misspelt one; each with the keys from
    which it is read.
    """
    runs: dict[str, list[Run]] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for position, cell_runs in matched.runs.items():
        metric, how = table[position].metric, reading.reading(table[position])
        if cell_runs and isinstance(how, ValueAt):
            runs.setdefault(metric, []).extend(cell_runs)
            keys[metric] = how.keys
    return {
        metric: names
        for metric, names in keys.items()
        if not any(run.recorded(name) for run in runs[metric] for name in names)
    }


def no_runs_error(name: str, scale: Scale | None, runs: Sequence[Run]) -> NoRunsError:
    """The error that a table has no runs; it names the command that starts them, and scales that have runs."""
    arguments = command_arguments(name, scale)
    other_scales = [other for other in available(name, runs) if other != scale]
    available_note = f" (available at scale {' and '.join(other_scales)})" if other_scales else ""
    return NoRunsError(f"table {name}: no finished runs{available_note}; start them with: fedrun {arguments}")


def of_no_table(name: str, scale: Scale, runs: Sequence[Run]) -> Sequence[Run]:
    """The runs of a table that belong to no cell of the other tables with the same sweep."""
    shared = experiment_sweep(name).runs
    for other in (other for other in tables() if other != name and experiment_sweep(other).runs == shared):
        if not runs:
            break
        runs = match(cell_configs(other, scale), runs).left_out[OF_NO_CELL]
    return runs


def is_run(ours: Measurement | None) -> bool:
    """Whether there are runs of a cell."""
    return ours is not None and ours.text != NOT_RUN


def difference(cell: Cell, ours: Measurement | None) -> str:
    """Our number minus the paper's; ``-`` if one of them is missing, or ours is of a stand-in."""
    if ours is None or ours.number is None or cell.number is None or ours.of_stand_in:
        return wording.ABSENT
    return f"{ours.number - cell.number:+z.{max(cell.decimals, 1)}f}"


def coordinates(cell: Cell, keys: Iterable[str]) -> tuple[str, ...]:
    """A cell's values of some coordinates."""
    return tuple(cell.coordinates.get(key, "") for key in keys)


def shared(cells: Sequence[Cell], table: Sequence[Cell]) -> dict[str, str]:
    """The coordinates that all cells of a block share, and cells of other blocks of the table do not: the block's rows
    and columns do not show them.
    """
    return {
        key: value
        for key, value in cells[0].coordinates.items()
        if all(cell.coordinates.get(key) == value for cell in cells)
        and any(cell.coordinates.get(key, value) != value for cell in table)
    }


def printed_blocks(
    reading: TableReading, table: Sequence[Cell], measured: Mapping[int, Measurement], whole: bool
) -> list[Table]:
    """A printed table for each of the table's blocks that has a run; ``whole``: with cells that no job makes, too."""
    shown = [position for position in range(len(table)) if whole or position in measured]
    run = [position for position in shown if is_run(measured.get(position))]
    printed = []
    for block in dict.fromkeys(coordinates(table[position], reading.blocks) for position in run):
        cells = {one: table[one] for one in shown if coordinates(table[one], reading.blocks) == block}
        named = dict(zip(reading.blocks, block, strict=True))
        named |= shared(list(cells.values()), [table[one] for one in shown])
        title = ", ".join([reading.title, *(f"{key} {value}" for key, value in named.items())])
        printed.append(layout(title, cells, reading.columns, reading.blocks, measured, whole))
    return printed


def layout(
    title: str,
    cells: Mapping[int, Cell],
    columns: Sequence[str],
    blocks: Sequence[str],
    measured: Mapping[int, Measurement],
    whole: bool,
) -> Table:
    """One printed table: for each combination of column coordinates the paper's number, ours and the difference; only
    ours if the paper has none. Columns without a run are left out.

    Args:
        title: the table's title.
        cells: its cells, by their positions.
        columns: coordinates laid out from left to right.
        blocks: coordinates that all cells share.
        measured: our numbers.
        whole: whether rows without a run are printed, if one of their cells can be run.
    """
    names = list(dict.fromkeys(key for cell in cells.values() for key in cell.coordinates))
    values = {key: {cell.coordinates.get(key) for cell in cells.values()} for key in names}
    vary = [key for key in names if len(values[key] - {None}) > 1]
    if len({coordinates(cell, vary) for cell in cells.values()}) < len(cells):  # some differ in lacking a coordinate
        vary = [key for key in names if len(values[key]) > 1]
    across = [key for key in columns if key in vary]
    down = [key for key in vary if key not in across and key not in blocks] or ["strategy"]
    places = {(coordinates(cell, down), coordinates(cell, across)): position for position, cell in cells.items()}
    run = [place for place, position in places.items() if is_run(measured.get(position))]
    heads = list(dict.fromkeys(head for _, head in places if any(head == other for _, other in run)))
    can_be_run = [place for place, position in places.items() if position in measured and place[1] in heads]
    with_line = {line for line, _ in (can_be_run if whole else run)}
    lines = list(dict.fromkeys(line for line, _ in places if line in with_line))
    numeric = {key for number, key in enumerate(across) if any(is_number(head[number]) for head in heads)}

    def named(head: tuple[str, ...]) -> str:
        named_values = zip(across, head, strict=True)
        return " ".join(f"{key}={value}" if key in numeric else value for key, value in named_values if value)

    def texts(position: int | None) -> dict[str, str]:
        if position is None:
            return dict.fromkeys(PARTS, "")
        cell, ours = cells[position], measured.get(position)
        text = OUT_OF_REACH if ours is None else ours.text
        return dict(zip(PARTS, (str(cell), text, difference(cell, ours)), strict=True))

    printed = {head for (_, head), position in places.items() if cells[position].printed}
    parts = [(head, part) for head in heads for part in PARTS if head in printed or part == OURS]
    header = (*down, *(": ".join(filter(None, (named(head), part))) for head, part in parts))
    rows = tuple((*line, *(texts(places.get((line, head)))[part] for head, part in parts)) for line in lines)
    return Table(title, header, rows, labels=len(down))


def is_number(value: str) -> bool:
    """Whether a coordinate's value says nothing without the coordinate's name: 0.1, 10 %, inf, true, null."""
    try:
        float(value.removesuffix("%"))
    except ValueError:
        return value in ("true", "false", "null")
    return True


def provenance(name: str, scale: Scale, matched: Matched) -> list[str]:
    """The command of the runs, their data, seeds, code and cost, and where they differ from the experiment's jobs."""
    runs = list({id(run): run for cell_runs in matched.runs.values() for run in cell_runs}.values())
    command = f"fedrun {command_arguments(name, scale)}"
    lines = [f"Scale: {scale} ({command}). {described_runs(runs)} Mean ± std over seeds (ddof 0)."]
    lines += [f"Different from the experiment: {line}." for line in matched.deviations]
    lines += [
        f"Left out because they {problem}: {wording.counted(len(others), 'run')} of this sweep, such as "
        f"{others[0].folder}."
        for problem, others in matched.left_out.items()
        if others
    ]
    return lines


def shorter_rounds(name: str, configs: Mapping[int, Plain], matched: Matched) -> str:
    """How many of the published rounds a smaller scale makes, such as ``10 of 50``; empty if it makes all of them."""
    positions = [position for position, runs in matched.runs.items() if runs]
    published = cell_configs(name, "full", positions)
    pairs = {(configs[position]["rounds"], published[position]["rounds"]) for position in positions}
    return ", ".join(f"{ours} of {paper}" for ours, paper in sorted(pairs) if ours < paper)


def described_runs(runs: Sequence[Run]) -> str:
    """The data, seeds, code and cost of complete runs, in one line."""
    summaries = [run.summary for run in runs if run.summary is not None]
    data = dict.fromkeys(f"{run['dataset']} ({run['data'][:8]})" for run in summaries)
    seeds = sorted({run.seed for run in runs})
    commits: dict[str, dict[str, None]] = {}  # of each pair of versions
    for run in summaries:
        recorded = {part: run["versions"].get(part, "not recorded") for part in ("fedrun", "torch", "commit")}
        commit = recorded.pop("commit")
        commits.setdefault(", ".join(f"{part} {version}" for part, version in recorded.items()), {})[commit] = None
    code = [f"{versions}, commit{'s' * (len(made) > 1)} {', '.join(made)}" for versions, made in commits.items()]
    line = f"Data: {', '.join(data)}. Seeds: {', '.join(map(str, seeds))}. Code: {'; '.join(code)}."
    costs = " and ".join(f"{hours:.2g} {what}" for what, hours in cost_in_hours(summaries).items())
    return f"{line} Cost: {costs}." if costs else line


def cost_in_hours(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Hours that runs took, times the threads or GPUs they used: ``core hours``, and ``hours of`` each kind of GPU.

    Empty if some of the runs did not record their machine.
    """
    machines = [(summary["seconds"], summary["machine"]) for summary in summaries if "machine" in summary]
    if len(machines) < len(summaries):
        return {}
    hours: dict[str, float] = {}
    for seconds, machine in machines:
        gpu = machine.get("gpu")
        what, each = ("core hours", machine["threads"]) if gpu is None else (f"hours of {gpu}", 1)
        hours[what] = hours.get(what, 0.0) + seconds * machine["processes"] * each / 3600
    return hours


def omissions(
    scale: Scale,
    table: Sequence[Cell],
    reading: TableReading,
    measured: Mapping[int, Measurement],
    matched: Matched,
    unfinished: int,
) -> list[str]:
    """Notes on missing cells and their reasons, and on numbers read in another round."""
    lines = []
    reasons: dict[str, int] = {}
    for cell in table:
        if (reason := reading.reason(cell)) is not None:
            reasons[reason] = reasons.get(reason, 0) + 1
    lines += [f"Out of reach, {count} of {len(table)} cells: {reason}." for reason, count in reasons.items()]
    if left_out := len(table) - len(measured) - sum(reasons.values()):
        lines.append(f"Left out at scale {scale}: {left_out} of {len(table)} cells.")
    if absent := sum(not runs for runs in matched.runs.values()):
        lines.append(f"Not run yet: {absent} of {len(measured)} cells.")
    seeds = {position: [run.seed for run in runs] for position, runs in matched.runs.items() if runs}
    all_seeds = sorted(set(chain.from_iterable(seeds.values())))
    if fewer := sum(len(cell_seeds) < len(all_seeds) for cell_seeds in seeds.values()):
        lines.append(
            f"Not run yet with all of the seeds {', '.join(map(str, all_seeds))}: {fewer} of {len(measured)} cells."
        )
    if unfinished:
        lines.append(f"Left out because they are unfinished: {wording.counted(unfinished, 'run')}.")
    if matched.not_compared:
        lines.append(
            "Not compared, because a version of fedrun with other keys made some runs: "
            f"{', '.join(matched.not_compared)}."
        )
    if early := sorted({cell.early for cell in measured.values() if cell.early is not None}):
        lines.append(
            f"Runs that end before the paper's round are read at their last round: {', '.join(map(str, early))}."
        )
    return lines
