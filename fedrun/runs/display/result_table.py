"""The result of one run, as the command line prints it at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrun.data.targets import Target
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.runs.display import wording
from fedrun.runs.folder import CURVES
from fedrun.system.checksums import missing_files


def result_table(summary: Mapping[str, Any]) -> Group:
    """Final and best metrics, rounds to each target, time, and the paths of the files.

    Args:
        summary: the content of a run's ``summary.json``.

    Raises:
        OSError: the run's ``checksums.txt`` cannot be read.
    """
    final, best, cap = summary["final"], summary["best"], summary["cap"]
    table = Table(
        title=Text(summary["title"], style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        header_style="dim",
        pad_edge=False,
    )
    table.add_column("")
    table.add_column(f"final (round {summary['rounds']})", justify="right")
    table.add_column("best", justify="right")
    table.add_column("in round", justify="right")
    for key in wording.in_order(final):
        entry = best.get(key)
        at_delta = f" at δ = {final['privacy/delta']:.3g}" if key == "privacy/epsilon" else ""
        table.add_row(
            Text(f"{wording.name(key)}{at_delta}"),
            wording.value(key, final[key]),
            wording.value(key, entry["value"]) if entry else "",
            str(entry["round"]) if entry else "",
        )
    if summary["rounds_to"]:
        table.add_section()
    for target, hit in summary["rounds_to"].items():
        table.add_row(f"rounds to {wording.target(Target.named(target))}", wording.hit(hit, cap), "", "")
    for target, seconds in summary.get("virtual_seconds_to", {}).items():
        reached = wording.ABSENT if seconds is None else wording.duration(seconds)
        table.add_row(f"virtual time to {wording.target(Target.named(target))}", reached, "", "")
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
    return Group(table, Text(), where)
