"""The result of a sweep: one row per setting, over its seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
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
from fedrun.runs.display.result_table import UNFOLDED

GAP = 2
"""The spaces between two columns."""

NOTE = "{} metrics after the last round{}; mean ± std over seeds (ddof 0)."
ROUNDS_TO = "to X: the first round that reaches X; >N: some seed did not reach X in N rounds."
SECONDS_TO = "seconds to X: virtual seconds up to that round."


def sweep_table(settings: Sequence[Setting], problems: Sequence[str] = ()) -> Group:
    """The table of a sweep.

    Args:
        settings: at least one, each with a complete run.
        problems: lines about runs that are left out.
    """
    table = tabulate(settings, problems)
    return Group(Parts(table), Text(), *map(Text, table.notes))


@dataclass(frozen=True)
class Parts:
    """A table on a terminal: one that is too wide becomes several with some of its columns each.

    Two strategies with two targets fit into 80 columns.
    """

    table: Table

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, drawn(self.table))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, part in enumerate(parts(self.table, options.max_width)):
            if number:
                yield Text()
            yield drawn(part)


def parts(table: Table, width: int) -> Iterator[Table]:
    """Tables of the names and of as many other columns each as fit into a width, where long names may be folded."""
    columns = list(zip(table.header, *table.rows, strict=True))
    names, *others = (max(map(len, column)) for column in columns)
    begin = 1
    while begin < len(columns):
        used = accumulate((GAP + other for other in others[begin - 1 :]), initial=min(names, width // 3))
        end = begin + max(1, sum(place <= width for place in used) - 1)
        header, *rows = zip(columns[0], *columns[begin:end], strict=True)
        yield replace(table, header=header, rows=tuple(rows))
        begin = end


def drawn(table: Table) -> RichTable:
    """The table without its notes."""
    rich_table = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False, header_style="dim"
    )
    rich_table.add_column(Text(table.header[0]), overflow="fold")
    for heading in table.header[1:]:
        rich_table.add_column(Text(heading), justify="right", no_wrap=True)
    for row in table.rows:
        rich_table.add_row(*map(Text, row))
    return rich_table


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
    targets = quantities.to_targets(runs)
    kinds = {target.kind for target in targets}
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
    notes = [NOTE.format(parts.capitalize(), in_percent), *([ROUNDS_TO] if "rounds to" in kinds else [])]
    notes += [*([SECONDS_TO] if "seconds to" in kinds else []), *own]
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
