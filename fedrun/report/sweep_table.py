"""The result of a sweep: one row per setting, over its seeds."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from fedrun.data.evaluation_split import pooled_name, recorded_split
from fedrun.data.tasks.metric_names import CLASSIFICATION_MEASURES, measures
from fedrun.report import quantities
from fedrun.report.quantities import Measured, Quantity
from fedrun.report.runs import REPORTED
from fedrun.report.settings import Setting, comparable_text, on_other_data
from fedrun.report.table import Table
from fedrun.report.tested_models import reported_accuracies, tested_models
from fedrun.runs.display import wording

UNFOLDED = 10_000
"""A width in columns that is enough for any table."""

NOTE = "{} metrics after the last round{}; mean ± std over seeds (ddof 0)."
ROUNDS_TO = "to: the first round that reaches it; >N: not by every seed in N rounds."
SECONDS_TO = "seconds to: virtual seconds up to that round."


def sweep_table(settings: Sequence[Setting], problems: Sequence[str] = ()) -> Group:
    """The table of a sweep.

    Args:
        settings: at least one, each with a complete run.
        problems: lines about runs that are left out.
    """
    table = tabulate(settings, problems)
    # Two strategies with two targets fit into 80 columns; in less space a number breaks at its ±.
    rich_table = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False, header_style="dim"
    )
    for number, heading in enumerate(table.header):
        rich_table.add_column(Text(heading), justify="left" if number < table.labels else "right", overflow="fold")
    for row in table.rows:
        rich_table.add_row(*map(Text, row))
    return Group(rich_table, Text(), *map(Text, table.notes))


def show(table: Group, console: Console) -> None:
    """Print a table: folded to the width of a terminal; in files and pipes in its own width."""
    if not console.is_terminal:
        console.width = max(
            console.width, console.measure(table, options=console.options.update(width=UNFOLDED)).maximum
        )
    console.print(table)


def tabulate(settings: Sequence[Setting], problems: Sequence[str] = ()) -> Table:
    """Write every cell; see :func:`sweep_table`."""
    runs = [run for setting in settings for run in setting.complete]
    metrics = measures(key for run in runs for key, value in run.rows[-1].items() if value is not None)
    metrics = metrics or list(CLASSIFICATION_MEASURES)
    rounds, seconds = quantities.targets(runs), quantities.timed_targets(runs)
    targets = [*rounds, *seconds]
    by_clients = any((run.reported or "").startswith("clients/") for run in runs)
    own = reported_accuracies(settings) if by_clients else []
    columns = [*([Quantity("final", REPORTED)] if own else []), *targets]
    splits = {setting.name: recorded_split(setting.complete[0].rows[-1]) for setting in settings}
    rows = []
    for setting in settings:
        pooled = [Quantity("final", pooled_name(splits[setting.name], metric)) for metric in metrics]
        cells = [str(Measured.of(quantity, setting)) for quantity in (*pooled, *columns)]
        rows.append((setting.name, str(len(setting.complete)), *cells))
    header = (
        "",
        "runs",
        *map(wording.name, metrics),
        *(["reported"] if own else []),
        *(target.heading for target in targets),
    )
    shares = [wording.is_share(metric) for metric in metrics]
    in_percent = ", in percent" if all(shares) else ", shares in percent" if any(shares) else ""
    parts = " and ".join(dict.fromkeys(splits.values()))
    notes = [NOTE.format(parts.capitalize(), in_percent), *([ROUNDS_TO] if rounds else [])]
    notes += [*([SECONDS_TO] if seconds else []), *own]
    notes += [*tested_models(settings), *other_data(settings), *problems]
    return Table("", header, tuple(rows), notes=tuple(notes))


def other_data(settings: Sequence[Setting]) -> list[str]:
    """A line for each setting whose data have another fingerprint than those of the first setting with the same keys of
    the dataset, as after a file has changed.
    """
    first: dict[str, Setting] = {}
    lines = []
    for setting in settings:
        keys = {key: value for key, value in setting.leaves.items() if key.startswith("dataset.")}
        same = first.setdefault(f"{setting.dataset} {comparable_text(keys)}", setting)
        if on_other_data(setting, same):
            lines.append(f"{setting.name}: on other data than {same.name}.")
    return lines
