"""The result of one run, as the command line prints it at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fedrun.data.targets import Target
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.runs.display import wording
from fedrun.runs.folder import CURVES
from fedrun.system.checksums import missing_files

UNFOLDED = 10_000
"""A width in columns that is enough for any table."""


@dataclass(frozen=True)
class Results:
    """A run's metrics, then its rounds to targets: a table, or lines where a terminal is too narrow for its numbers.

    Attributes:
        title: the run's.
        round: the last one.
        metrics: name, last value, best value and its round; the last two may be empty.
        targets: name, and when it was reached.
    """

    title: str
    round: int
    metrics: Sequence[tuple[str, str, str, str]]
    targets: Sequence[tuple[str, str]]

    @property
    def table(self) -> Table:
        table = Table(
            title=Text(self.title, style="bold"),
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            header_style="dim",
            pad_edge=False,
        )
        rows = [*self.metrics, *((*target, "", "") for target in self.targets)]
        table.add_column("")
        for heading in (f"final (round {self.round})", "best", "in round"):
            table.add_column(heading, justify="right", no_wrap=True)
        for number, row in enumerate(rows, start=1):
            table.add_row(*map(Text, row), end_section=number == len(self.metrics) < len(rows))
        return table

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unfolded = Measurement.get(console, options.update(width=UNFOLDED), self.table).maximum
        names = [name for name, *_ in (*self.metrics, *self.targets)]
        foldable = max(map(len, names), default=0) - max(
            (len(word) for name in names for word in name.split()), default=0
        )
        if unfolded - foldable <= options.max_width:
            yield self.table
            return
        yield Text(f"{self.title}, after round {self.round}", style="bold")
        for name, value, best, round in self.metrics:
            yield Text(f"{name}: {value}{f', best {best} in round {round}' if best else ''}")
        for name, value in self.targets:
            yield Text(f"{name}: {value}")


def result_table(summary: Mapping[str, Any]) -> Group:
    """Final and best metrics, rounds to each target, time, and the paths of the files.

    Args:
        summary: the content of a run's ``summary.json``.

    Raises:
        OSError: the run's ``checksums.txt`` cannot be read.
    """
    final, best, cap = summary["final"], summary["best"], summary["cap"]
    metrics = []
    for key in wording.in_order(final):
        entry = best.get(key)
        delta = final.get("privacy/delta")  # a mechanism of a user's own may have none
        at_delta = f" at δ = {delta:.3g}" if key == "privacy/epsilon" and delta is not None else ""
        best_cells = (wording.value(key, entry["value"]), str(entry["round"])) if entry else ("", "")
        metrics.append((f"{wording.name(key)}{at_delta}", wording.value(key, final[key]), *best_cells))
    targets = []
    for target, hit in summary["rounds_to"].items():
        targets.append((f"rounds to {wording.target(Target.named(target))}", wording.hit(hit, cap)))
    for target, seconds in summary.get("virtual_seconds_to", {}).items():
        reached = wording.ABSENT if seconds is None else wording.duration(seconds)
        targets.append((f"virtual time to {wording.target(Target.named(target))}", reached))
    folder = Path(summary["folder"])
    where = Table.grid(padding=(0, 2))
    where.add_column(style="dim")
    where.add_column(overflow="fold")
    for name, words in summary.get("decisions", {}).items():  # summaries of earlier versions have none
        where.add_row(name, Text(words))
    reported = summary.get("reported")  # not in summaries of earlier versions
    if reported is not None and reported.startswith("clients/"):  # a pooled one is the table's first row
        where.add_row("reported", Text(f"{wording.name(reported)} {wording.value(reported, final[reported])}"))
    if (virtual := final.get(VIRTUAL_SECONDS)) is not None:
        where.add_row("virtual time", wording.duration(virtual))
    where.add_row("time", f"{wording.duration(summary['seconds'])} in rounds and tests")
    where.add_row("folder", Text(str(folder)))
    missing = missing_files(folder)
    if CURVES not in missing:
        where.add_row("curves", Text(str(folder / CURVES)))
    if missing:
        where.add_row("missing", Text(f"{', '.join(missing)} (deleted since; overwrite=true starts over)"))
    return Group(Results(summary["title"], summary["rounds"], metrics, targets), Text(), where)
