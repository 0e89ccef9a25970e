"""What a complete run leaves behind: its summary, its model, and how the model does for every client."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedrun.commit import commit
from fedrun.evaluation import SampleResults, per_holder
from fedrun.federation import Shares
from fedrun.metrics.rounds_to_target import first_hit
from fedrun.simulation import Simulation, State
from fedrun.tracking.base import Row

ACCURACY = "test/accuracy"
HIGHER_IS_BETTER = (ACCURACY, "test/f1", "test/mcc")
LOWER_IS_BETTER = ("test/loss",)
PACKAGES = ("fedrun", "numpy", "scikit-learn", "hydra-core")


def target_name(target: float) -> str:
    """A target as it is written everywhere: at least two decimals (``0.70``, ``0.975``)."""
    return f"{target:.2f}" if round(target, 2) == target else repr(target)


def hits(rows: Sequence[Row], targets: Sequence[float]) -> dict[str, int | None]:
    """The first evaluated round at which the test accuracy reached each target, None where it did not."""
    rounds = [int(row["round"] or 0) for row in rows]
    values = [float("nan") if (value := row.get(ACCURACY)) is None else float(value) for row in rows]
    return {target_name(target): first_hit(rounds, values, target) for target in targets}


def best(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The best value of each test metric and the round where it was first reached."""
    found: dict[str, dict[str, float]] = {}
    for names, choose in ((HIGHER_IS_BETTER, max), (LOWER_IS_BETTER, min)):
        for name in names:
            values = [
                (float(value), int(row["round"] or 0))
                for row in rows
                if (value := row.get(name)) is not None and math.isfinite(value)
            ]
            if values:
                value, round = choose(values, key=lambda pair: pair[0])
                found[name] = {"value": value, "round": round}
    return found


def versions() -> dict[str, str]:
    """What computed the results."""
    packages = {name: version(name) for name in PACKAGES}
    source = {} if (known := commit()) is None else {"commit": known}
    return {"python": platform.python_version(), "torch": torch.__version__, **packages, **source}


def save_model(simulation: Simulation, state: State, path: Path) -> None:
    """``model.safetensors``: the global model under the network's own tensor names."""
    from safetensors.torch import save

    views = simulation.network.layout.views(state.server.model.cpu())
    partial = path.with_suffix(".partial")
    partial.write_bytes(save({name: view.clone() for name, view in views.items()}))
    partial.replace(path)


def save_clients(simulation: Simulation, state: State, path: Path) -> None:
    """``clients.parquet``: one row per training client (seen) and per holder of test samples (not seen).

    Columns: client, samples, loss, accuracy, threshold, appeal, seen. Loss and accuracy are the global model's on the
    client's own samples; they are null for training clients where ``evaluation.train_clients`` is off.
    """
    import pyarrow
    import pyarrow.parquet

    train, test = simulation.federation.train, simulation.federation.test
    measured = simulation.experiment.evaluation.train_clients
    held_out = _client_rows(test, simulation.results(state, test.samples), seen=False)
    rows = _client_rows(train, simulation.results(state, train.samples) if measured else None, seen=True) + held_out
    schema = pyarrow.schema(
        [
            ("client", pyarrow.string()),
            ("samples", pyarrow.int64()),
            ("loss", pyarrow.float64()),
            ("accuracy", pyarrow.float64()),
            ("threshold", pyarrow.float64()),
            ("appeal", pyarrow.bool_()),
            ("seen", pyarrow.bool_()),
        ]
    )
    partial = path.with_suffix(".partial")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), partial)
    partial.replace(path)


def _client_rows(shares: Shares, results: SampleResults | None, seen: bool) -> list[dict[str, Any]]:
    absent = torch.full((len(shares),), float("nan"), dtype=torch.float64)
    losses, accuracies = (absent, absent) if results is None else per_holder(results, shares)
    columns = zip(shares.sizes.tolist(), losses.tolist(), accuracies.tolist(), strict=True)
    return [
        {
            "client": shares.name(holder),
            "samples": samples,
            "loss": None if loss != loss else loss,
            "accuracy": None if accuracy != accuracy else accuracy,
            "threshold": None,
            "appeal": None,
            "seen": seen,
        }
        for holder, (samples, loss, accuracy) in enumerate(columns)
    ]
