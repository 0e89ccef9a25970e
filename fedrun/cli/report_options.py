"""The options of ``fedrun-report``: parsed, checked and completed."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fedrun.cli.entrypoint import OneLineParser
from fedrun.config.grids import SCALES, Scale
from fedrun.config.options import further_folder
from fedrun.data.evaluation_split import TARGETED
from fedrun.system.errors import InputError

if TYPE_CHECKING:
    from fedrun.report.significance import Test
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

Format = Literal["markdown", "latex", "csv", "html"]

ENDINGS: dict[str, Format] = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html"}
"""The formats of files by the ends of their names."""

PICTURES = "pictures"
"""The folder of pictures in the runs' folder, unless ``--to`` names another place."""


@dataclass(frozen=True)
class ReportOptions:
    """What a command line asks for.

    Attributes:
        runs: folders of runs, or patterns of them.
        picture: the file of the picture; None: the report is a text.
        to: the file of the text; None: it is printed.
        format: the text's format.
        metrics: the metrics to report; empty: all.
        targets: accuracies whose first round is reported, in addition to the runs' own targets.
        baseline: a setting's name, a strategy or ``KEY=VALUE`` to test others against.
        test: the test against the baseline.
        curve: the metric of a picture of curves.
        against: the picture's horizontal axis.
        table: a paper's table.
        figure: a paper's figure.
        scale: of the runs of the table or the figure; None: the largest one with runs.
        results: every paper's table with runs, and the other experiments.
        config_dir: folder of further options; None: none.
    """

    runs: tuple[str, ...]
    picture: Path | None
    to: str | None
    format: Format
    metrics: tuple[str, ...]
    targets: tuple[float, ...]
    baseline: str | None
    test: Test
    curve: str | None
    against: Against
    table: str | None
    figure: str | None
    scale: Scale | None
    results: bool
    config_dir: Path | None


def parse(arguments: Sequence[str]) -> ReportOptions:
    """The options of a command line.

    Raises:
        InputError: some are invalid, contradict one another or would be ignored.
    """
    given = parser().parse_intermixed_args(arguments)
    drawn = given.curve or given.figure
    format = format_of(given.format, None if drawn else given.to)
    check_combination(given, format)
    if given.to and (given.to.endswith("/") or Path(given.to).is_dir()):
        raise InputError(f"--to {given.to}: is a folder; allowed: a file")
    return ReportOptions(
        runs=tuple(given.runs),
        picture=Path(given.to or default_picture(given)) if drawn else None,
        to=given.to,
        format=format,
        metrics=tuple(dict.fromkeys(given.metric)),
        targets=tuple(given.target),
        baseline=given.baseline,
        test=given.test or "t",
        curve=given.curve,
        against=given.against or "rounds",
        table=given.table,
        figure=given.figure,
        scale=given.scale,
        results=given.results,
        config_dir=next(iter(given.config_dir), None),
    )


def format_of(format: Format | None, to: str | None) -> Format:
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


def default_picture(given: argparse.Namespace) -> str:
    """The file of a picture without ``--to``."""
    from fedrun.report.runs import matches

    folder = next((folder for place in given.runs for folder in matches(place)), "outputs")
    against = f"_against_{given.against}" if given.against not in (None, "rounds") else ""
    return f"{folder}/{PICTURES}/{(given.curve or given.figure).replace('/', '_')}{against}.png"


MODES = ("curve", "table", "figure", "results")
"""Options for something other than the tables that compare settings."""


def check_combination(given: argparse.Namespace, format: Format) -> None:
    """Reject options that contradict one another or would be ignored.

    Raises:
        InputError: some options do.
    """
    modes = [f"--{mode}" for mode in MODES if getattr(given, mode)]
    if len(modes) > 1:
        raise InputError(f"{' and '.join(modes)}: allowed: one of them")
    chosen = f"--format {given.format}" if given.format else f"--to {given.to}"
    picture = given.curve or given.figure
    contradictions = {
        "--config-dir: is given twice; allowed: one folder, with the options of both": len(given.config_dir) > 1,
        "--scale: allowed: with --table or --figure": given.scale and not (given.table or given.figure),
        "--against: allowed: with --curve": given.against and not given.curve,
        "--test: allowed: with --baseline": given.test and not given.baseline,
        f"--to {given.to}: allowed for a picture: a file whose name ends in .png, .pdf or .svg": given.to
        and picture
        and Path(given.to).suffix not in (".png", ".pdf", ".svg"),
    }
    if format == "csv":
        contradictions |= {
            f"--{name}: allowed: without {chosen}": getattr(given, name) for name in ("metric", "target", "baseline")
        }
    if modes:
        accuracy = given.curve == TARGETED
        contradictions |= {
            f"{chosen}: allowed: without {modes[0]}": given.format if picture else format in ("csv", "html"),
            f"--metric: allowed: without {modes[0]}": given.metric,
            f"--baseline: allowed: without {modes[0]}": given.baseline,
            f"--target: allowed: without {modes[0]}, or with --curve {TARGETED}": given.target and not accuracy,
        }
    if contradicting := [line for line, applies in contradictions.items() if applies]:
        raise InputError(contradicting[0])


def share(text: str) -> float:
    """An accuracy above 0, at most 1.

    Raises:
        InputError: it is something else.
    """
    try:
        target = float(text)
    except ValueError:
        target = math.nan
    if not 0 < target <= 1:
        raise InputError(f"--target {text}: allowed: an accuracy above 0, at most 1")
    return target


def expanded(text: str) -> str:
    """A file's name; the shell does not expand a ``~`` after an equals sign."""
    return os.path.expanduser(nonempty("--to")(text))


def nonempty(option: str, instead: str = "name one") -> Callable[[str], str]:
    """The type of an option whose value must not be empty."""

    def value(text: str) -> str:
        if not text:
            raise InputError(f"{option}: is empty; leave it out, or {instead}")
        return text

    return value


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = OneLineParser(
        prog="fedrun-report",
        description="Reports on any set of run folders, and compares with the papers' tables.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    runs = "folders, or patterns of them"
    add(
        "runs",
        nargs="*",
        default=["outputs"],
        type=nonempty("RUNS", f"name {runs}"),
        metavar="RUNS",
        help=f"{runs} (default: outputs)",
    )
    add(
        "--format",
        choices=tuple(ENDINGS.values()),
        help="csv: a row per run, settings and metrics as columns (default: by the end of --to, or markdown)",
    )
    to = "write to this file instead of the screen; pictures: instead of to RUNS/pictures"
    add("--to", type=expanded, metavar="FILE", help=to)
    only = "report only this metric; repeat for several"
    add("--metric", action="append", default=[], type=nonempty("--metric"), metavar="KEY", help=only)
    add(
        "--target",
        action="append",
        default=[],
        type=share,
        metavar="A",
        help="also report the rounds to this accuracy",
    )
    add(
        "--baseline",
        type=nonempty("--baseline"),
        metavar="SETTING",
        help="a setting's name, strategy or KEY=VALUE to test others against",
    )
    add("--test", choices=("t", "wilcoxon"), help="with --baseline: paired t-test (default) or Wilcoxon's")
    add("--curve", type=nonempty("--curve"), metavar="KEY", help="draw this metric (PNG; with --to also PDF or SVG)")
    axes = ("rounds", "params", "bytes", "upload", "samples", "seconds", "virtual", "epsilon")
    add("--against", choices=axes, help="with --curve: the horizontal axis")
    add("--table", type=nonempty("--table"), metavar="PAPER/TABLE", help="a paper's table next to ours")
    add(
        "--figure",
        type=nonempty("--figure"),
        metavar="PAPER/FIGURE",
        help="draw a paper's figure from our runs (PNG; with --to also PDF or SVG)",
    )
    add(
        "--scale",
        choices=SCALES,
        help="with --table or --figure: which runs (default: the largest scale with runs)",
    )
    add(
        "--config-dir",
        action="append",
        type=further_folder,
        default=[],
        metavar="FOLDER",
        help="folder of further options, as for fedrun: with your papers' tables, and the names of your options",
    )
    add("--results", action="store_true", help="every paper's table that has runs, and other experiments")
    return parser
