"""The result of a sweep: one row per setting, over its seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from fedrun.config.identity import IRRELEVANT
from fedrun.data.evaluation_split import pooled_metric, recorded_split
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import CLASSIFICATION_MEASURES, measures
from fedrun.evaluation.rounds_to_target import describe
from fedrun.report.quantities import spread
from fedrun.report.table import Table
from fedrun.report.tested_models import tested_models
from fedrun.runs.display import wording

Summary = Mapping[str, Any]
"""The content of a complete run's ``summary.json``."""

UNFOLDED = 10_000
"""A width in columns that is enough for any table."""

NOTE = "{} metrics after the last round{}; mean ± std over seeds (ddof 0)."
ROUNDS_TO = "to: the first round that reaches it; >N: not by every seed in N rounds."


def sweep_table(summaries: Sequence[Summary]) -> Group:
    """The sweep's complete runs (at least one), grouped by everything but their seed."""
    table = tabulate(summaries)
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


def tabulate(summaries: Sequence[Summary]) -> Table:
    """Group the runs and write every cell; settings are in the order of their first runs."""
    groups: dict[str, list[Summary]] = defaultdict(list)
    for summary in summaries:
        groups[summary["group"]].append(summary)
    targets = sorted({target for summary in summaries for target in summary["rounds_to"]}, key=Target.named)
    finals = [run["final"] for run in summaries]
    recorded = measures(key for final in finals for key, number in final.items() if number is not None)
    metrics = recorded or CLASSIFICATION_MEASURES
    names = labels({group: runs[0] for group, runs in groups.items()})
    own = reported_by_clients(groups, names)
    rows = tuple(
        (
            names[group],
            str(len(runs)),
            *(mean_and_std(metric, [pooled_metric(run["final"], metric) for run in runs]) for metric in metrics),
            *([mean_and_std("accuracy", [run["final"].get(run.get("reported")) for run in runs])] if own else []),
            *(rounds_cell(runs, target) for target in targets),
        )
        for group, runs in groups.items()
    )
    header = (
        "",
        "runs",
        *(wording.name(metric) for metric in metrics),
        *(["reported"] if own else []),
        *(f"to {wording.target(Target.named(target))}" for target in targets),
    )
    shares = [wording.is_share(metric) for metric in metrics]
    in_percent = ", in percent" if all(shares) else ", shares in percent" if any(shares) else ""
    parts = " and ".join(dict.fromkeys(recorded_split(run["final"]) for run in summaries))
    notes = [NOTE.format(parts.capitalize(), in_percent), *([ROUNDS_TO] if targets else []), *own]
    notes += tested_models({names[group]: runs for group, runs in groups.items()})
    return Table("", header, rows, notes=tuple(notes))


def reported_by_clients(groups: Mapping[str, Sequence[Summary]], names: Mapping[str, str]) -> list[str]:
    """A line on which metric each setting reports, if one of them reports an accuracy over clients; otherwise none."""
    settings: dict[str, list[str]] = defaultdict(list)
    for group, runs in groups.items():
        for metric in dict.fromkeys(run.get("reported") or "" for run in runs):
            settings[metric].append(names[group])
    if not any(metric.startswith("clients/") for metric in settings):
        return []
    if len(settings) == 1:
        return [f"Reported: {wording.name(metric)}." for metric in settings]
    return [
        f"Reported: {wording.name(metric)} of {', '.join(setting_names)}."
        for metric, setting_names in settings.items()
        if metric
    ]


def labels(settings: Mapping[str, Summary]) -> dict[str, str]:
    """The names of the settings: their datasets, strategies and overrides, where they differ.

    Args:
        settings: one run of each group.
    """
    parts_of = {
        group: [run["dataset"], run["strategy"], *sorted(filter(is_setting, run["overrides"]))]
        for group, run in settings.items()
    }
    shared = set.intersection(*map(set, parts_of.values())) if len(parts_of) > 1 else set()
    names = {
        group: " ".join(part for part in parts if part not in shared) if len(parts_of) > 1 else " ".join(parts[:2])
        for group, parts in parts_of.items()
    }
    names = {group: name or "default" for group, name in names.items()}
    # Two settings may differ without an override, such as by an edited YAML file; the hash at the group's end differs.
    written = list(names.values())
    names = {
        group: name if written.count(name) == 1 else f"{name} {group.rpartition('/')[2]}"
        for group, name in names.items()
    }
    # Of copies of a setting under several values of the key `name`, only the whole groups differ.
    written = list(names.values())
    return {group: name if written.count(name) == 1 else group for group, name in names.items()}


def is_setting(override: str) -> bool:
    """Whether an override is part of a setting's name; seed, dataset, strategy and irrelevant keys are not."""
    key = override.lstrip("+").partition("=")[0]
    return key not in ("dataset", "strategy") and key.partition(".")[0] not in IRRELEVANT


def mean_and_std(metric: str, values: Sequence[float | None]) -> str:
    """A metric over the seeds; ``-`` if one of them has none."""
    known = [value for value in values if value is not None]
    return spread(metric, known) if len(known) == len(values) else wording.ABSENT


def rounds_cell(runs: Sequence[Summary], target: str) -> str:
    """The rounds a setting's seeds needed to a target; ``-`` if it was not one of the setting's targets."""
    if not all(target in run["rounds_to"] for run in runs):
        return wording.ABSENT
    return describe([run["rounds_to"][target] for run in runs], max(run["cap"] for run in runs))
