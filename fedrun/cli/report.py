"""``fedrun-report``: tables, curves and a page from any set of run folders, and the papers' tables next to ours.

Exit status: 0 done; 1 there is too little memory; 2 nothing can be reported, a file of a run is damaged or cannot
be read, the report cannot be written, or the command line is invalid (one line says why).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.cli.entrypoint import run_command
from fedrun.cli.report_options import ReportOptions, parse
from fedrun.config.grids import SCALES
from fedrun.config.options import with_config_dir
from fedrun.system.atomic_file import atomic_write
from fedrun.system.errors import BAD_INPUT, InputError, one_line

if TYPE_CHECKING:
    from fedrun.report.runs import Run
    from fedrun.report.settings import Setting
    from fedrun.runs.display.curves import Against


def main() -> None:
    """The ``fedrun-report`` command."""
    run_command(run, "fedrun-report")


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit status."""
    options = parse(arguments)
    with with_config_dir(options.config_dir):
        return make(options)


def make(options: ReportOptions) -> int:
    """Make the report, and return the exit status."""
    from fedrun.report.runs import find

    names = run_names(options)
    with progress_bar("reading runs") as progress:
        search = find(options.runs, names, progress)
    for problem in search.problems:
        report_problem(problem)
    if not search.runs and names is None:
        raise InputError("no run that can be reported")
    if options.picture is None:
        write(text(options, search.runs), options.to)
    else:
        picture(options, options.picture, search.runs)
    return BAD_INPUT if search.damaged else 0


@contextmanager
def progress_bar(task: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows the progress of a task; it shows nothing if standard error is not a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        number = bar.add_task(task)
        yield lambda done, total: bar.update(number, completed=done, total=total)


def report_problem(line: str) -> None:
    print(f"fedrun-report: {one_line(line)}", file=sys.stderr)


def run_names(options: ReportOptions) -> frozenset[str] | None:
    """The names of the runs of a table or a figure, at any scale; None if all runs count.

    Raises:
        InputError: there is no such table or figure.
    """
    from fedrun.report.papers.described_tables import load_table
    from fedrun.report.papers.figure import load_figure

    if options.table:
        at_scale = load_table(options.table).run_names
    elif options.figure:
        at_scale = load_figure(options.figure).run_names
    else:
        return None
    return frozenset(name for scale in SCALES for name in at_scale(scale))


def text(options: ReportOptions, runs: Sequence[Run]) -> str:
    """The report as text.

    Raises:
        InputError: it cannot be made from these runs.
    """
    from fedrun.report import comparison
    from fedrun.report.baselines import Baselines
    from fedrun.report.papers.paper_table import paper_table
    from fedrun.report.table import render
    from fedrun.runs.display import wording

    if options.format == "csv":
        from fedrun.report.per_run import per_run_csv

        return per_run_csv(runs)
    if options.table:
        return render(paper_table(options.table, options.scale, runs).tables, options.format)
    if options.results:
        from fedrun.report.papers.results import HEADING, results

        with progress_bar("comparing tables") as progress:
            tables = results(runs, progress)
        heading = [HEADING] if options.format == "markdown" else []
        return "\n\n".join([*heading, render(tables, options.format)])
    settings = compared(runs)
    metrics = comparison.selected(settings, options.metrics)
    baselines = Baselines.named(settings, options.baseline) if options.baseline else None
    tables = comparison.report(settings, metrics, options.targets, baselines, options.test)
    if options.format == "html":
        from fedrun.report.html_page import page

        title = f"{wording.counted(len(runs), 'run')} in {wording.counted(len(settings), 'setting')}"
        return page(title, tables, settings, options.targets)
    return render(tables, options.format)


def compared(runs: Sequence[Run]) -> list[Setting]:
    """The settings of runs; the runs that are left out are reported."""
    from fedrun.report.settings import settings

    found, problems = settings(runs)
    for problem in problems:
        report_problem(problem)
    return found


def picture(options: ReportOptions, path: Path, runs: Sequence[Run]) -> None:
    """Draw the figure or the curves.

    Raises:
        InputError: there is nothing to draw, or the file cannot be written.
    """
    if options.figure:
        from fedrun.report.papers.figure import draw_figure

        with drawing(path):
            unknown = draw_figure(options.figure, options.scale, runs, path)
        if unknown:
            report_problem(f"figure {options.figure}: {unknown}")
    elif options.curve:
        # only the runs of its curves, so that settings are named by what differs among them
        drawn = [run for run in runs if run.draws(options.curve)]
        if not drawn:
            from fedrun.report.quantities import no_such_metric, recorded_keys

            raise InputError(no_such_metric(options.curve, recorded_keys(runs)))
        draw(compared(drawn), options.curve, options.against, options.targets, path)


def draw(settings: Sequence[Setting], key: str, against: Against, targets: Sequence[float], path: Path) -> None:
    """Write a picture of a metric's curves.

    Raises:
        InputError: there is nothing to draw, or the file cannot be written.
    """
    from fedrun.data.targets import Target
    from fedrun.report.tested_models import remarks
    from fedrun.runs.display import wording
    from fedrun.runs.display.curves import curve
    from fedrun.runs.display.panels import Line, plot_panels

    lines = {setting.name: Line([run.rows_with(key) for run in setting.drawn]) for setting in settings}
    drawn = {name: line for name, line in lines.items() if curve(line.seeds, key, against) is not None}
    with drawing(path):
        plot_panels({((key,), wording.name(key)): drawn}, path, against, targets=[*map(Target.of, targets)])
    if left_out := ", ".join(name for name in lines if name not in drawn):
        report_problem(f"{key} against {against}: no round of all seeds has both; left out: {left_out}")
    if any(len(line.seeds) > 1 for line in drawn.values()):
        report_problem("A curve is the mean over seeds, with a band of ± one standard deviation (ddof 0).")
    for line in remarks([setting for setting in settings if setting.name in drawn], {key}):
        report_problem(line)


@contextmanager
def drawing(path: Path) -> Iterator[None]:
    """Print the path of the picture written in the block, or raise an error of one line.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    print(path)


def write(text: str, to: str | None) -> None:
    """Print a text, or write it to a file in UTF-8, where names of folders that are not UTF-8 keep their bytes.

    Raises:
        InputError: the file cannot be written, or a value is not text.
    """
    if to is None:
        print(text)
        return
    path = Path(to)
    try:
        content = f"{text}\n".encode(errors="surrogateescape")
        if path.is_symlink() or (path.exists() and not path.is_file()):  # such as /dev/stdout: no file to replace
            path.write_bytes(content)
        else:
            with atomic_write(path, shared=True) as file:
                file.write(content)
    except OSError as error:
        raise InputError(f"{to}: cannot be written ({error.strerror})") from None
    except UnicodeEncodeError as error:
        value = error.object[error.start : error.end]
        raise InputError(
            f"{to}: cannot be written (a value of a run has {value!a}, which is not a character)"
        ) from None
    print(to)


if __name__ == "__main__":
    main()
