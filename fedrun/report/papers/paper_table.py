"""A paper's table next to ours: our number for each cell, and its difference from the paper's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from fedrun.config.as_config import Plain
from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import SCALES, Scale
from fedrun.report.papers.cell_jobs import cell_configs
from fedrun.report.papers.described_tables import command_arguments, load_table, tables
from fedrun.report.papers.job_values import settings_of_jobs
from fedrun.report.papers.layout import difference, printed_blocks
from fedrun.report.papers.matching import OF_NO_CELL, Matched, match
from fedrun.report.papers.measurement import Measurement, measure
from fedrun.report.papers.paper import Cell
from fedrun.report.papers.provenance import data_and_code, seeds_and_cost
from fedrun.report.papers.readings import ValueAt
from fedrun.report.papers.table_reading import TableReading
from fedrun.report.quantities import no_such_metric, recorded_keys
from fedrun.report.runs import Run, complete_runs
from fedrun.report.table import Table
from fedrun.runs.display import wording
from fedrun.system.errors import InputError


def available(run_names: Callable[[Scale], Collection[str]], runs: Sequence[Run]) -> list[Scale]:
    """The scales, largest first, at which there are complete runs with one of a table's or a figure's names."""
    names = {run.config["name"] for run in runs if run.complete}
    return [scale for scale in SCALES if not names.isdisjoint(run_names(scale))]


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
    reading = load_table(name)
    no_runs = no_runs_error(name, scale, runs)
    for one in available(reading.run_names, runs) if scale is None else [scale]:
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
    reading = load_table(name)
    table = reading.cells()
    configs = cell_configs(name, scale)
    if not configs and (cell := next((cell for cell in table if reading.reason(cell) is None), None)):
        raise no_job_error(reading, cell, scale)
    own_name, *further_names = reading.run_names(scale)
    matched = match(configs, complete_runs(runs, [own_name]), complete_runs(runs, further_names))
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
    has_full = scale != "full" and "full" in experiment_sweep(name).scales
    shorter = shorter_rounds(name, configs, matched) if has_full else ""
    above = (
        f"Scale: {scale} (fedrun {command_arguments(name, scale)}). {seeds_and_cost(matched.distinct)} "
        "Mean ± std over seeds (ddof 0).",
        *([f"Fewer rounds than at scale full: {shorter}."] if shorter else []),
        *(
            f"In place of {key} {value}, ours ran with {' '.join(overrides)}, so no differences are given."
            for key, value, overrides in stand_ins
        ),
        *further_runs(matched, further_names),
        *deviations(matched),
    )
    unfinished = sum(run.config["name"] == own_name and not run.complete for run in runs)
    notes = (
        *(
            f"No run has {' or '.join(keys)}, from which {metric} is read."
            for metric, keys in unread(reading, table, matched).items()
        ),
        *omissions(scale, table, reading, measured, matched, unfinished),
        *(note for note in reading.notes.values() if note),
        data_and_code(matched.distinct),
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
    with_runs = {table[position].metric for position, runs in matched.runs.items() if runs}
    if not with_runs or len(missing) < len(with_runs):
        return
    metric, (key, *_) = next(iter(missing.items()))
    raise reading.error(f"metrics.{metric}", no_such_metric(key, recorded_keys(matched.distinct)))


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
    other_scales = [other for other in available(load_table(name).run_names, runs) if other != scale]
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


def further_runs(matched: Matched, names: Sequence[str]) -> list[str]:
    """A line for each of these names that some runs of the cells have."""
    counts = {name: sum(run.config["name"] == name for run in matched.distinct) for name in names}
    return [f"Also read: {wording.counted(count, 'run')} of {name}." for name, count in counts.items() if count]


def deviations(matched: Matched) -> list[str]:
    """Where the runs differ from the experiment's jobs, and the runs that are used for no cell."""
    return [
        *(f"Different from the experiment: {line}." for line in matched.deviations),
        *(
            f"Left out because they {problem}: {wording.counted(len(others), 'run')} of this sweep, such as "
            f"{others[0].folder}."
            for problem, others in matched.left_out.items()
            if others
        ),
    ]


def shorter_rounds(name: str, configs: Mapping[int, Plain], matched: Matched) -> str:
    """How many of the published rounds a smaller scale makes, such as ``10 of 50``; empty if it makes all of them."""
    positions = [position for position, runs in matched.runs.items() if runs]
    published = cell_configs(name, "full", positions)
    pairs = {(configs[position]["rounds"], published[position]["rounds"]) for position in positions}
    return ", ".join(f"{ours} of {paper}" for ours, paper in sorted(pairs) if ours < paper)


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
