"""A tidy table of runs: a row per run; its settings, final and best metrics as columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from fedrun.report.runs import REPORTED, Run
from fedrun.report.settings import by_short_key, leaves, named, varying
from fedrun.runs.summary import beyond_rows

Value = str | int | float | bool | None


def per_run_rows(runs: Sequence[Run]) -> list[dict[str, Value]]:
    """A dictionary per run, all with the same keys.

    The keys are ``folder``, ``name``, ``dataset``, ``strategy``, ``seed``, ``complete``; every configuration key whose
    value differs between the runs (an option under its group: ``strategy.server``); ``round`` (the last evaluated one)
    with all its metrics; ``reported``, the accuracy that the run reports; ``reported_metric``, its key; ``best/KEY``
    and ``best_round/KEY``; ``rounds_to/TARGET``; with a clock ``virtual_seconds_to/TARGET``; ``seconds``; ``commit``
    (fedrun's). Numbers are as measured: shares up to 1. A value that is missing is None.
    """
    contents = [leaves(run.config) for run in runs]
    differing = varying(contents)
    rows = [
        {
            "folder": str(run.folder),
            "name": run.config["name"],
            "dataset": run.dataset,
            "strategy": run.strategy,
            "seed": run.seed,
            "complete": run.complete,
            **{short: plain(named(key, content.get(key))) for short, key in by_short_key(differing, content).items()},
            **run.rows[-1],
            **reported(run),
            **({} if run.summary is None else beyond_rows(run.summary)),
            "seconds": None if run.summary is None else run.summary["seconds"],
            "commit": None if run.summary is None else run.summary["versions"].get("commit"),
        }
        for run, content in zip(runs, contents, strict=True)
    ]
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]


def reported(run: Run) -> dict[str, Value]:
    """The accuracy that a run reports, and its key; nothing if it reports none."""
    return {} if run.reported is None else {REPORTED: run.rows[-1].get(run.reported), "reported_metric": run.reported}


def plain(value: Any) -> Value:
    """A value in a cell: a list as text."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def per_run_csv(runs: Sequence[Run]) -> str:
    """The rows as CSV; an empty cell for None."""
    rows = per_run_rows(runs)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")
