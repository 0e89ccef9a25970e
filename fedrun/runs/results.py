"""The model of a complete run, and its results on every client."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from fedrun.data.federation import ClientIndices
from fedrun.evaluation.client_groups import SEEN, UNSEEN
from fedrun.evaluation.client_results import ClientResults
from fedrun.experiment.state import State
from fedrun.models.inference import per_holder
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.vectors import Vectors
from fedrun.system.atomic_file import atomic_write


def save_model(simulation: Simulation, state: State, path: Path) -> None:
    """``model.safetensors``: the global model under the network's own tensor names.

    The concatenated network after FedConcat's second phase; with several models each under ``models.M.``.
    """
    from safetensors.torch import save

    phase = simulation.phase(state)
    each = [phase.network.layout.views(server.model) for server in state.models]
    views: Vectors = {**phase.frozen_tensors, **each[0]}
    if len(each) > 1:
        views = {f"models.{number}.{name}": view for number, own in enumerate(each) for name, view in own.items()}
    with atomic_write(path) as file:
        file.write(
            save({name: view.cpu().clone(memory_format=torch.contiguous_format) for name, view in views.items()})
        )


def save_clients(simulation: Simulation, state: State, path: Path) -> None:
    """``clients.parquet``: one row per client that trains (seen), per unseen client, and per holder of pooled tests.

    Loss, accuracy, threshold and appeal are those of the final model (untuned) on the client's own test samples, or,
    where it has none, on its training samples (the loss alone where thresholds are compared with training losses; null
    where ``evaluation.train_clients`` does not ask for it). ``samples`` counts training samples, for holders of test
    samples those.

    The ranks of a run must all call this; the leader writes.
    """
    import pyarrow
    import pyarrow.parquet

    rows = _client_rows(simulation, state)
    if not simulation.ranks.leads:
        return
    schema = pyarrow.schema(
        [
            ("client", pyarrow.string()),
            ("samples", pyarrow.int64()),
            ("loss", pyarrow.float64()),
            ("accuracy", pyarrow.float64()),
            ("threshold", pyarrow.float64()),
            ("appeal", pyarrow.bool_()),
            ("seen", pyarrow.bool_()),
            ("attacker", pyarrow.bool_()),
            ("flipped", pyarrow.bool_()),
        ]
    )
    with atomic_write(path) as file:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), file)


def _client_rows(simulation: Simulation, state: State) -> list[dict[str, Any]]:
    """The rows of all clients and holders."""
    phase, evaluator = simulation.phase(state), simulation.evaluator(state)
    federation = phase.federation
    train, test, unseen = federation.train, federation.test, federation.unseen
    measured = evaluator.clients(state)
    rows = _rows(train, _judged(measured, SEEN) or _training(simulation, state), True, federation.flipped)
    for client in federation.attackers:
        rows[client]["attacker"] = True
    if unseen is not None:
        rows += _rows(unseen.train, _judged(measured, UNSEEN), False, unseen.flipped)
    if not phase.client.is_personal:
        rows += _rows(test, _losses(*per_holder(evaluator.results(state, test.samples), test)), False, None)
    else:  # no model is everybody's
        rows += _rows(test, None, False, None)
    return rows


def _judged(measured: dict[str, dict[str, ClientResults]], population: str) -> ClientResults | None:
    """The results of the untuned model for the clients of a population, if they have test samples of their own."""
    return measured[population][""] if population in measured else None


def _training(simulation: Simulation, state: State) -> ClientResults | None:
    """The results on the training samples of the clients that train, if they are wanted."""
    asked, clients = simulation.experiment.evaluation.train_clients, simulation.federation.train
    if asked == "auto":  # a third of training on as many samples: forward, but not backward
        asked = state.totals.client_samples >= 3 * int(clients.sizes.sum())
    return _losses(*simulation.evaluator(state).on_training(state)) if asked else None


def _losses(loss: torch.Tensor, accuracy: torch.Tensor) -> ClientResults:
    return ClientResults(accuracy, loss, None, None, None)


def _rows(
    shares: ClientIndices, results: ClientResults | None, seen: bool, flipped: torch.Tensor | None
) -> list[dict[str, Any]]:
    """The rows of some clients."""

    def column(values: torch.Tensor | None) -> list[Any]:
        if values is None:
            return [None] * len(shares)
        return [None if value != value else value for value in values.tolist()]  # null for NaN

    nothing = torch.full((len(shares),), math.nan)
    known = results or _losses(nothing, nothing)
    columns = {
        "samples": shares.sizes.tolist(),
        "loss": column(known.loss),
        "accuracy": column(known.accuracy),
        "threshold": column(known.threshold),
        "appeal": [
            None if loss != loss else found for loss, found in zip(known.loss, column(known.appeal), strict=True)
        ],
        "flipped": [False] * len(shares) if flipped is None else flipped.tolist(),
    }
    return [
        {"client": shares.name(holder), "seen": seen, "attacker": False}
        | {name: values[holder] for name, values in columns.items()}
        for holder in range(len(shares))
    ]
