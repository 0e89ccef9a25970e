"""Everything that a folder of runs has to say of the papers: their tables, and the experiments that are no table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fedrun.config.experiments import experiment_sweep
from fedrun.config.grids import SCALES, named
from fedrun.report import comparison
from fedrun.report.papers.paper_table import NoRunsError, at_scale, available, made_of
from fedrun.report.papers.table_reading import asked_with, tables
from fedrun.report.quantities import is_internal, metrics
from fedrun.report.ranking import ranking
from fedrun.report.runs import Progress, Run
from fedrun.report.settings import settings
from fedrun.report.table import Table
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Section:
    """What belongs together: a paper's table at one scale, or an experiment.

    Attributes:
        name: such as ``turbosvm/table2/small``; of a table at scale full, and of an experiment without scales, no third
            part.
        tables: one or several.
    """

    name: str
    tables: tuple[Table, ...]


def sections(runs: Sequence[Run], progress: Progress = lambda done, total: None) -> list[Section]:
    """The papers' tables at every scale at which there are complete runs, then the papers' other experiments.

    Runs at scale smoke are left out: they only show that a table can be made.

    Args:
        runs: complete and unfinished ones.
        progress: called before each table with the number of tables so far and the number of all.

    Raises:
        InputError: there are no such runs.
    """
    made = []
    for number, name in enumerate(tables()):
        progress(number, len(tables()))
        for scale in (scale for scale in available(name, runs) if scale != "smoke"):
            with suppress(NoRunsError):  # the runs there are may all be another table's, which shares them
                ranks = ranking(settings(complete_runs(experiment_sweep(name).run_name(scale), runs))[0])
                made.append(Section(named(name, scale), (*at_scale(name, scale, runs), *ranks)))
    tabulated = {experiment_sweep(name).run_name(scale) for name in tables() for scale in SCALES}
    others = dict.fromkeys(
        name
        for run in runs
        if run.complete and not run.searches and "/" in (name := run.config["name"]) and name not in tabulated
        if not name.endswith("/smoke")
    )
    for name in sorted(others):
        if compared := experiment_tables(name, complete_runs(name, runs)):
            made.append(Section(name, tuple(compared)))
    if not made:
        raise InputError(f"no finished run of any paper's table; such are made with: fedrun experiment={tables()[0]}")
    return made


def complete_runs(name: str, runs: Sequence[Run]) -> list[Run]:
    """The complete runs of an experiment at one scale."""
    return [run for run in runs if run.complete and run.config["name"] == name]


def experiment_tables(name: str, runs: Sequence[Run]) -> list[Table]:
    """What the complete runs of an experiment came to in the end, and in how many rounds."""
    compared, _ = settings(runs)
    measured = [
        key for key in metrics(runs) if key.startswith(("test/", "clients/", "unseen/")) and not is_internal(key)
    ]
    tables = comparison.outcomes(compared, comparison.measured(compared, measured, ()), ("final", "rounds to"))
    experiment, _, last = name.rpartition("/")
    scaled = next((scale for scale in SCALES if scale == last), None)
    made = asked_with(experiment if scaled else name, scaled)
    titled = [replace(table, title=f"{made}: {table.title[0].lower()}{table.title[1:]}") for table in tables]
    every = sorted({run.seed for run in runs})
    fewer = [
        f"Only seeds {', '.join(map(str, seeds))}: {setting.name}."
        for setting in compared
        if (seeds := [run.seed for run in setting.runs]) != every
    ]
    return [replace(titled[0], above=(made_of(runs), *fewer)), *titled[1:], *ranking(compared)] if titled else []
