"""What made the runs of a table: seeds, cost, data and code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrun.report.runs import Run


def seeds_and_cost(runs: Sequence[Run]) -> str:
    """The seeds of complete runs and what the runs cost, in one line."""
    seeds = ", ".join(map(str, sorted({run.seed for run in runs})))
    hours = cost_in_hours([run.summary for run in runs if run.summary is not None])
    cost = " and ".join(f"{number:{',.0f' if number >= 10 else '.2g'}} {what}" for what, number in hours.items())
    return f"Seeds: {seeds}. Cost: {cost}." if cost else f"Seeds: {seeds}."


def data_and_code(runs: Sequence[Run]) -> str:
    """The data of complete runs and the versions of the code that made them, in one line."""
    summaries = [run.summary for run in runs if run.summary is not None]
    data = dict.fromkeys(f"{run['dataset']} ({run['data'][:8]})" for run in summaries)
    commits: dict[str, dict[str, None]] = {}  # of each pair of versions
    for run in summaries:
        recorded = {part: run["versions"].get(part, "not recorded") for part in ("fedrun", "torch", "commit")}
        commit = recorded.pop("commit")
        commits.setdefault(", ".join(f"{part} {version}" for part, version in recorded.items()), {})[commit] = None
    code = [f"{versions}, commit{'s' * (len(made) > 1)} {', '.join(made)}" for versions, made in commits.items()]
    return f"Data: {', '.join(data)}. Code: {'; '.join(code)}."


def cost_in_hours(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Hours that runs took, times the threads or GPUs they used: ``core hours``, and ``hours of`` each kind of GPU.

    Empty if some of the runs did not record their machine.
    """
    machines = [(summary["seconds"], summary["machine"]) for summary in summaries if "machine" in summary]
    if len(machines) < len(summaries):
        return {}
    hours: dict[str, float] = {}
    for seconds, machine in machines:
        gpu = machine.get("gpu")
        what, each = ("core hours", machine["threads"]) if gpu is None else (f"hours of {gpu}", 1)
        hours[what] = hours.get(what, 0.0) + seconds * machine["processes"] * each / 3600
    return hours
