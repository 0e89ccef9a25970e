"""The results of a folder of runs: the papers' tables, then the experiments that are not tables."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import SCALES
from fedrun.config.options import options
from fedrun.report import comparison
from fedrun.report.papers.agreement import overview
from fedrun.report.papers.described_tables import by_number, command_arguments, tables
from fedrun.report.papers.paper_table import NoRunsError, PaperTable, at_scale
from fedrun.report.papers.provenance import data_and_code, seeds_and_cost
from fedrun.report.quantities import TO_TARGET, is_internal, metrics
from fedrun.report.ranking import ranking
from fedrun.report.runs import Progress, Run, complete_runs
from fedrun.report.settings import Setting, differing, settings, written
from fedrun.report.table import Table
from fedrun.system.errors import InputError

HEADING = (
    "# Results\n\n"
    "The papers' tables with our numbers next to theirs, then experiments that are not tables of a paper. Written by "
    "`fedrun-report --results`, never by hand."
)


def results(runs: Sequence[Run], progress: Progress = lambda done, total: None) -> list[Table]:
    """An overview, the papers' tables at every scale at which there are complete runs, then the other experiments.

    Runs at scale smoke are left out: they only show that a table can be made.

    Args:
        runs: complete and unfinished ones.
        progress: called before each table with the number of tables so far and the number of all.

    Raises:
        InputError: there are no such runs.
    """
    papers: list[PaperTable] = []
    printed: list[Table] = []
    complete = {run.config["name"] for run in runs if run.complete}
    for number, name in enumerate(names := tables()):
        progress(number, len(names))
        sweep = experiment_sweep(name)
        for scale in (scale for scale in SCALES if scale != "smoke" and sweep.run_name(scale) in complete):
            with suppress(NoRunsError):  # all runs may belong to another table that shares them
                papers.append(paper := at_scale(name, scale, runs))
                printed += paper.tables
                if sweep.runs == name:  # a table that shares another's runs would repeat its ranks
                    own = settings(complete_runs(runs, [sweep.run_name(scale)]))[0]
                    printed += parts(paper.reading.title, ranking(own))
    tabulated = {experiment_sweep(name).run_name(scale) for name in names for scale in SCALES}
    others = {
        name
        for run in runs
        if run.complete and not run.on_validation and "/" in (name := run.config["name"]) and name not in tabulated
        if not name.endswith("/smoke")
    }
    for name in sorted(others, key=by_number):
        printed += experiment_tables(name, complete_runs(runs, [name]))
    if not printed:
        raise InputError(
            f"no finished run of any paper's table at scale full or small; start one with: fedrun experiment={names[0]}"
        )
    return [overview(papers), *printed] if papers else printed


def experiment_tables(name: str, runs: Sequence[Run]) -> list[Table]:
    """The final metrics and the rounds to targets of an experiment's complete runs."""
    compared_settings, problems = settings(runs)
    runs = [run for setting in compared_settings for run in setting.runs]  # without those that are left out
    metric_keys = [
        key for key in metrics(runs) if key.startswith(("test/", "clients/", "unseen/")) and not is_internal(key)
    ]
    # the price of an accuracy: privacy, and bytes where settings differ in them
    if any("privacy/epsilon" in run.rows[-1] for run in runs):
        metric_keys.append("privacy/epsilon")
    if len({run.rows[-1].get("cost/bytes_up") for run in runs}) > 1:
        metric_keys.append("cost/bytes_up")
    quantities = comparison.reported_quantities(compared_settings, metric_keys, ())
    tables = comparison.result_tables(compared_settings, quantities, ("final", *TO_TARGET))
    if not tables:
        return []
    experiment, _, last = name.rpartition("/")
    scaled = next((scale for scale in SCALES if scale == last), None)
    known = experiment if scaled else name
    arguments = command_arguments(known, scaled) if known in options("experiment") else f"name={name}"
    all_seeds = sorted({run.seed for run in runs})
    fewer = [
        f"Only seeds {', '.join(map(str, seeds))}: {setting.name}."
        for setting in compared_settings
        if (seeds := [run.seed for run in setting.runs]) != all_seeds
    ]
    tables[0] = replace(tables[0], above=(seeds_and_cost(runs), *fewer, *choices(compared_settings)))
    tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *problems, data_and_code(runs)))
    return parts(arguments, [*tables, *ranking(compared_settings)])


def parts(title: str, tables: Sequence[Table]) -> list[Table]:
    """Tables as the parts of a section."""
    return [replace(table, title=title, part=table.title) for table in tables]


def choices(compared_settings: Sequence[Setting]) -> list[str]:
    """The values of keys that differ between settings whose names are those of their strategies alone."""
    if any(setting.name != setting.strategy for setting in compared_settings):
        return []
    lines = []
    for key in differing(compared_settings):
        if key.partition(".")[0] == "strategy" or not all(key in setting.leaves for setting in compared_settings):
            continue
        by_value: dict[str, list[str]] = {}
        for setting in compared_settings:
            by_value.setdefault(written(setting.leaves, key), []).append(setting.name)
        values = "; ".join(f"{value} for {', '.join(names)}" for value, names in by_value.items())
        lines.append(f"{key}: {values}.")
    return lines
