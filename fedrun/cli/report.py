"""``fedrun-report``: tables, curves and a page from any set of run folders, and the papers' tables next to ours.

Exit status: 0 done; 1 there is too little memory; 2 nothing can be reported, a file of a run is damaged, the report
cannot be written, or the command line is invalid (one line says why).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedrun.cli.entrypoint import OneLineParser, run_command
from fedrun.config.grids import SCALES
from fedrun.data.evaluation_split import TARGETED
from fedrun.system.atomic_file import atomic_write
from fedrun.system.errors import BAD_INPUT, InputError, one_line

if TYPE_CHECKING:
    from fedrun.report.runs import Run
    from fedrun.report.settings import Setting
    from fedrun.runs.display.curves import Against

EXAMPLES = """\
examples:
  fedrun-report outputs/runs                                   tables in Markdown
  fedrun-report outputs/runs --baseline fedavg                 and p-values against FedAvg, paired over seeds
  fedrun-report outputs/runs --to runs.csv                     a row per run
  fedrun-report outputs/runs --to report.html                  one page with curves to explore
  fedrun-report outputs/runs --curve test/accuracy --against params   a picture of curves
  fedrun-report outputs --table turbosvm/table2                a paper's table next to ours
  fedrun-report outputs --figure turbosvm/figure2              a paper's figure from our runs
  fedrun-report outputs --config-dir conf --table mine/table1  your own paper's table, from your own folder of options
  fedrun-report outputs --results --to RESULTS.md              all tables and experiments that have runs, into that file
"""


def main() -> None:
    """The ``fedrun-report`` command."""
    run_command(run, "fedrun-report")


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return the exit status."""
    options = parser().parse_intermixed_args(arguments)
    check(options)
    from fedrun.config.options import with_config_dir

    with with_config_dir(config_dir(options)):
        return run_with(options)


def run_with(options: argparse.Namespace) -> int:
    """Make the report that the options describe, and return the exit status."""
    from fedrun.report.runs import find

    names = experiments(options)
    with progress_bar("reading runs") as progress:
        search = find(options.runs, names, progress)
    for problem in search.problems:
        report_problem(problem)
    if not search.runs and names is None:
        raise InputError("no run that can be reported")
    write(report(options, search.runs), options.to)
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


MODES = ("curve", "table", "figure", "results")
"""Options for something other than the tables that compare settings."""

PICTURES = "pictures"
"""The folder of pictures in the runs' folder, unless ``--to`` names another place."""


ENDINGS = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html"}
"""The formats of files by the ends of their names."""


def format_of(format: str | None, to: str | None) -> str:
    """The format of a report: as chosen, or else by the end of the file's name; Markdown without one.

    Raises:
        InputError: the name has another end.
    """
    ending = Path(to).suffix.lower() if to else ""
    if format is None and ending not in ("", *ENDINGS):
        raise InputError(f"--to {to}: allowed without --format: a name that ends in {', '.join(ENDINGS)}")
    by_name = ENDINGS.get(ending, format or "markdown")
    if format not in (None, by_name):
        raise InputError(f"--to {to}: is the name of a file in {by_name}; allowed: without --format {format}")
    return by_name


def check(options: argparse.Namespace) -> None:
    """Reject options that contradict one another or would be ignored; choose the format, and the file of a picture.

    Raises:
        InputError: some options do.
    """
    if options.to:
        options.to = os.path.expanduser(options.to)
    for name in ("curve", "table", "figure", "baseline", "to"):
        if getattr(options, name) == "":
            raise InputError(f"--{name}: is empty; leave it out, or name one")
    if "" in options.runs:
        raise InputError("RUNS: '' is empty; allowed: folders, or patterns of them")
    modes = [f"--{mode}" for mode in MODES if getattr(options, mode)]
    if len(modes) > 1:
        raise InputError(f"{' and '.join(modes)}: allowed: one of them")
    picture = options.curve or options.figure
    chosen = f"--format {options.format}" if options.format else f"--to {options.to}"
    options.format = format_of(options.format, None if picture else options.to)
    contradictions = {
        "--scale: allowed: with --table or --figure": options.scale and not (options.table or options.figure),
        "--config-dir: allowed: with --table, --figure or --results": options.config_dir
        and not (options.table or options.figure or options.results),
        "--against: allowed: with --curve": options.against and not options.curve,
        "--test: allowed: with --baseline": options.test and not options.baseline,
    }
    if options.format == "csv":
        contradictions |= {
            f"--{name}: allowed: without {chosen}": getattr(options, name) for name in ("metric", "target", "baseline")
        }
    if modes:
        formats = ("csv", "html", "latex") if picture else ("csv", "html")
        accuracy = options.curve == TARGETED
        contradictions |= {
            f"{chosen}: allowed: without {modes[0]}": options.format in formats,
            f"--metric: allowed: without {modes[0]}": options.metric,
            f"--baseline: allowed: without {modes[0]}": options.baseline,
            f"--target: allowed: without {modes[0]}, or with --curve {TARGETED}": options.target and not accuracy,
        }
    if contradicting := [line for line, applies in contradictions.items() if applies]:
        raise InputError(contradicting[0])
    if wrong := [target for target in options.target if not 0 < target <= 1]:
        raise InputError(f"--target {wrong[0]:g}: allowed: an accuracy above 0, at most 1")
    if picture and not options.to:
        from fedrun.report.runs import matches

        folder = next((folder for place in options.runs for folder in matches(place)), "outputs")
        against = f"_against_{options.against}" if options.against not in (None, "rounds") else ""
        options.to = f"{folder}/{PICTURES}/{picture.replace('/', '_')}{against}.png"
    if picture and Path(options.to).suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"--to {options.to}: allowed for a picture: a file whose name ends in .png, .pdf or .svg")
    if options.to and (options.to.endswith("/") or Path(options.to).is_dir()):
        raise InputError(f"--to {options.to}: is a folder; allowed: a file")


def config_dir(options: argparse.Namespace) -> Path | None:
    """The folder of further options, if one is named.

    Raises:
        InputError: there is no such folder, or several are named.
    """
    from fedrun.config.options import further_folder

    match options.config_dir:
        case []:
            return None
        case [""]:
            raise InputError("--config-dir: is empty; leave it out, or name a folder")
        case [folder]:
            return further_folder(folder)
    raise InputError("--config-dir: is given twice; allowed: one folder, with the options of both")


def experiments(options: argparse.Namespace) -> frozenset[str] | None:
    """The names of the runs of a table or a figure, at any scale; None if all runs count.

    Raises:
        InputError: there is no such table or figure.
    """
    if not (options.table or options.figure):
        return None
    from fedrun.config.experiments import experiment_sweep
    from fedrun.report.papers import figure, table_reading

    reading = table_reading.load(options.table) if options.table else figure.load(options.figure)
    sweep = experiment_sweep(reading.experiment)
    return frozenset(sweep.run_name(scale) for scale in SCALES)


def report(options: argparse.Namespace, runs: Sequence[Run]) -> str | None:
    """The report as text; None if it is a picture, which has been written already.

    Raises:
        InputError: it cannot be made from these runs.
    """
    from fedrun.report import comparison
    from fedrun.report.baselines import Baselines
    from fedrun.report.papers.paper_table import paper_table
    from fedrun.report.settings import settings
    from fedrun.report.table import render
    from fedrun.runs.display import wording

    if options.format == "csv":
        from fedrun.report.per_run import per_run_csv

        return per_run_csv(runs)
    if options.table:
        return render(paper_table(options.table, options.scale, runs).tables, options.format)
    if options.figure:
        from fedrun.report.papers.figure import draw_figure

        with drawing(Path(options.to)) as path:
            unknown = draw_figure(options.figure, options.scale, runs, path)
        if unknown:
            report_problem(f"figure {options.figure}: {unknown}")
        return None
    if options.results:
        from fedrun.report.papers.results import HEADING, results

        with progress_bar("comparing tables") as progress:
            text = render(results(runs, progress), options.format)
        return f"{HEADING}\n\n{text}" if options.format == "markdown" else text
    drawn = [run for run in runs if options.curve and run.draws(options.curve)]
    if drawn:  # only the runs of its curves, so that settings are named by what differs among them
        runs = drawn
    compared, problems = settings(runs)
    for problem in problems:
        report_problem(problem)
    if options.curve:
        if not drawn:
            comparison.selected(compared, [options.curve])
        draw(compared, options.curve, options.against or "rounds", options.target, Path(options.to))
        return None
    metrics = comparison.selected(compared, list(dict.fromkeys(options.metric)))
    baselines = Baselines.named(compared, options.baseline) if options.baseline else None
    tables = comparison.report(compared, metrics, options.target, baselines, options.test or "t")
    if options.format == "html":
        from fedrun.report.html_page import page

        title = f"{wording.counted(len(runs), 'run')} in {wording.counted(len(compared), 'setting')}"
        return page(title, tables, compared, options.target)
    return render(tables, options.format)


def draw(settings: Sequence[Setting], key: str, against: Against, targets: Sequence[float], path: Path) -> None:
    """Write a picture of a metric's curves.

    Raises:
        InputError: there is nothing to draw, or the file cannot be written.
    """
    from fedrun.data.targets import Target
    from fedrun.report.tested_models import remarks
    from fedrun.runs.display import wording
    from fedrun.runs.display.panels import Line, plot_panels

    lines = {setting.name: Line([run.rows_with(key) for run in setting.drawn]) for setting in settings}
    with drawing(path):
        plot_panels({((key,), wording.name(key)): lines}, path, against, targets=[*map(Target.of, targets)])
    band = ["A curve is the mean over seeds, with a band of ± one standard deviation (ddof 0)."]
    for line in [*(band if any(len(line.seeds) > 1 for line in lines.values()) else []), *remarks(settings, {key})]:
        report_problem(line)


@contextmanager
def drawing(path: Path) -> Iterator[Path]:
    """Print the path of the picture written in the block, or raise an error of one line.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None
    print(path)


def write(text: str | None, to: str | None) -> None:
    """Print a text, or write it to a file in UTF-8, where names of folders that are not UTF-8 keep their bytes.

    Raises:
        InputError: the file cannot be written, or a value is not text.
    """
    if text is None:
        return
    if to is None:
        print(text)
        return
    path = Path(to)
    try:
        content = f"{text}\n".encode(errors="surrogateescape")
        if path.is_symlink() or (path.exists() and not path.is_file()):  # such as /dev/stdout: no file to replace
            path.write_bytes(content)
        else:
            with atomic_write(path) as file:
                file.write(content)
    except OSError as error:
        raise InputError(f"{to}: cannot be written ({error.strerror})") from None
    except UnicodeEncodeError as error:
        value = error.object[error.start : error.end]
        raise InputError(
            f"{to}: cannot be written (a value of a run has {value!a}, which is not a character)"
        ) from None
    print(to)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = OneLineParser(
        prog="fedrun-report",
        description="Reports on any set of run folders, and compares with the papers' tables.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="*", default=["outputs"], metavar="RUNS", help="folders, or patterns of them (default: outputs)")
    add(
        "--format",
        choices=tuple(ENDINGS.values()),
        help="csv: a row per run, settings and metrics as columns (default: by the end of --to, or markdown)",
    )
    add("--to", metavar="FILE", help="write to this file instead of the screen; pictures: instead of to RUNS/pictures")
    only = "report only this metric; repeat for several"
    add("--metric", action="append", default=[], metavar="KEY", help=only)
    add(
        "--target", action="append", default=[], type=float, metavar="A", help="also report the rounds to this accuracy"
    )
    add("--baseline", metavar="SETTING", help="a setting's name, strategy or KEY=VALUE to test others against")
    add("--test", choices=("t", "wilcoxon"), help="with --baseline: paired t-test (default) or Wilcoxon's")
    add("--curve", metavar="KEY", help="draw this metric (PNG; with --to also PDF or SVG)")
    axes = ("rounds", "params", "bytes", "upload", "samples", "seconds", "virtual", "epsilon")
    add("--against", choices=axes, help="with --curve: the horizontal axis")
    add("--table", metavar="PAPER/TABLE", help="a paper's table next to ours")
    add("--figure", metavar="PAPER/FIGURE", help="draw a paper's figure from our runs (PNG; with --to also PDF or SVG)")
    add(
        "--scale",
        choices=SCALES,
        help="with --table or --figure: which runs (default: the largest scale with runs)",
    )
    add(
        "--config-dir",
        action="append",
        default=[],
        metavar="FOLDER",
        help="with --table, --figure or --results: folder of further options, as for fedrun, with your papers' tables",
    )
    add("--results", action="store_true", help="every paper's table that has runs, and other experiments")
    return parser


if __name__ == "__main__":
    main()
