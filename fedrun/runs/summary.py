"""``summary.json``: the final and best metrics of a complete run, and the software and hardware that computed them."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

from fedrun.data.evaluation_split import pooled_names
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import lower_is_better, measures
from fedrun.execution.hardware import gpu_name
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.experiment.observer import Row, round_of
from fedrun.runs.checkpoint import Checkpoint, Identity
from fedrun.runs.metrics_file import round_reached
from fedrun.system.source_commit import loaded_commit
from fedrun.system.version import __version__

if TYPE_CHECKING:
    from fedrun.simulation.simulation import Simulation

PACKAGES = ("numpy", "scikit-learn", "hydra-core")


def hits(rows: Sequence[Row], targets: Sequence[Target]) -> dict[str, int | None]:
    """The first evaluated round at which each target was reached, by its name; None if it was not."""
    return {target.name: round_reached(rows, target) for target in targets}


def _times(rows: Sequence[Row], rounds_to: Mapping[str, int | None]) -> dict[str, float | int | None]:
    """The virtual time at which each target was reached; None if it was not."""
    times = {row["round"]: row[VIRTUAL_SECONDS] for row in rows}
    return {target: None if round is None else times[round] for target, round in rounds_to.items()}


def best(rows: Sequence[Row], reported: str | None) -> dict[str, dict[str, float]]:
    """The best value of each test metric and of the reported accuracy, and the round where it was first reached."""
    best_values: dict[str, dict[str, float]] = {}
    recorded = measures(name for row in rows for name in row)
    pooled = [name for metric in (*recorded, "loss") for name in pooled_names(metric)]
    for name in dict.fromkeys((*pooled, *filter(None, [reported]))):
        values = [
            (float(value), round_of(row))
            for row in rows
            if (value := row.get(name)) is not None and math.isfinite(value)
        ]
        if values:
            value, round = (min if lower_is_better(name) else max)(values, key=lambda pair: pair[0])
            best_values[name] = {"value": value, "round": round}
    return best_values


def beyond_rows(summary: Mapping[str, Any]) -> dict[str, float | int | None]:
    """The results in a summary that no row has: ``best/test/f1``, ``best_round/test/f1``, ``rounds_to/0.70``, .."""
    best = summary["best"]
    return {
        **{f"best/{metric}": entry["value"] for metric, entry in best.items()},
        **{f"best_round/{metric}": entry["round"] for metric, entry in best.items()},
        **{f"rounds_to/{target}": round for target, round in summary["rounds_to"].items()},
        **{f"virtual_seconds_to/{target}": time for target, time in summary.get("virtual_seconds_to", {}).items()},
    }


def versions() -> dict[str, str]:
    """The versions of Python and the packages, and the commit of fedrun if it runs from a checkout."""
    packages = {name: version(name) for name in PACKAGES}
    source = {} if (commit := loaded_commit()) is None else {"commit": commit}
    python = platform.python_version()
    return {"python": python, "torch": torch.__version__, "fedrun": __version__, **packages, **source}


def summarise_run(
    simulation: Simulation,
    identity: Identity,
    last: Checkpoint,
    rows: Sequence[Row],
    targets: Sequence[Target],
    decisions: Mapping[str, str],
) -> dict[str, Any]:
    """The summary of a complete run.

    Args:
        simulation: the run's simulation.
        identity: the run's identity.
        last: the checkpoint after the last round.
        rows: the rows of the evaluated rounds.
        targets: the targets whose first round is reported.
        decisions: the choices of the run, in words.
    """
    experiment, gpu = simulation.experiment, gpu_name(simulation.device)
    record = experiment.record
    reported = experiment.evaluation.reported(experiment.strategy.client, rows[-1].keys())
    return {
        "status": "complete",
        "title": record.title,
        "group": record.group,
        "folder": str(record.folder),
        "dataset": record.dataset,
        "strategy": record.strategy,
        "overrides": list(record.overrides),
        "hparams": record.hparams,
        "seed": experiment.seed,
        "config_hash": identity.config,
        "data": identity.data,
        "appeal": identity.appeal,
        "initial": identity.initial,
        "rounds": last.state.round,
        "cap": experiment.rounds,
        "final": {name: value for name, value in rows[-1].items() if name != "round"},
        "reported": reported,
        "best": best(rows, reported),
        "rounds_to": (rounds_to := hits(rows, targets)),
        **({} if VIRTUAL_SECONDS not in rows[-1] else {"virtual_seconds_to": _times(rows, rounds_to)}),
        "seconds": last.seconds,
        "machine": {
            "processes": last.processes,
            "threads": torch.get_num_threads(),
            "executor": simulation.round_runner(last.state).executor.name,
            **({} if gpu is None else {"gpu": gpu}),
        },
        "decisions": dict(decisions),
        "versions": versions(),
    }
