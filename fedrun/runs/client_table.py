"""``clients.parquet``: the results of a complete run on every client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from fedrun.data.federation import ClientIndices
from fedrun.data.tasks.base import Task
from fedrun.evaluation.client_groups import SEEN, UNSEEN
from fedrun.evaluation.client_results import ClientResults
from fedrun.experiment.state import State
from fedrun.models.inference import per_client
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import is_personal
from fedrun.system.atomic_file import atomic_write

if TYPE_CHECKING:
    import pyarrow


def client_table(simulation: Simulation, state: State) -> pyarrow.Table:
    """A row per training client (seen), per unseen client, and per holder of pooled test samples.

    Loss, score (``accuracy`` of a classification), threshold and appeal are those of the final model, without tuning,
    on the client's own test samples (the loss on its training samples if thresholds are compared with training losses);
    null for a client without any. If no client has test samples, loss and score are those on the training samples, or
    null if ``evaluation.train_clients`` excludes them. ``evaluated_on`` says whether the score (without one the loss)
    is on ``test`` or ``train`` samples. ``samples`` counts training samples, and test samples for holders of test
    samples. Clients' results by other models have columns with the prefixes of the metrics' names: ``global_loss``,
    ``tuned_accuracy``.

    All ranks of a run must call this.
    """
    import pyarrow

    client_results, task = simulation.evaluator(state).clients(state), simulation.phase(state).samples.task
    rows = _client_rows(simulation, state, client_results)
    kinds = dict.fromkeys(kind for results in client_results.values() for kind in results if kind)
    schema = pyarrow.schema(
        [
            ("client", pyarrow.string()),
            ("samples", pyarrow.int64()),
            ("loss", pyarrow.float64()),
            (task.score, pyarrow.float64()),
            ("evaluated_on", pyarrow.string()),
            *((f"{kind}{name}", pyarrow.float64()) for kind in kinds for name in ("loss", task.score)),
            ("threshold", pyarrow.float64()),
            ("appeal", pyarrow.bool_()),
            ("seen", pyarrow.bool_()),
            ("attacker", pyarrow.bool_()),
            ("flipped", pyarrow.bool_()),
        ]
    )
    return pyarrow.Table.from_pylist(rows, schema)


def save_clients(table: pyarrow.Table, path: Path) -> None:
    """Write the table of :func:`client_table` as Parquet.

    Raises:
        OSError: the file cannot be written.
    """
    import pyarrow.parquet

    with atomic_write(path) as file:
        pyarrow.parquet.write_table(table, file)


def _client_rows(
    simulation: Simulation, state: State, client_results: Mapping[str, Mapping[str, ClientResults]]
) -> list[dict[str, Any]]:
    """The rows of all clients and holders of test samples."""
    phase, evaluator = simulation.phase(state), simulation.evaluator(state)
    federation, task = phase.federation, phase.samples.task
    train, test, unseen = federation.train, federation.test, federation.unseen
    further, of_unseen = dict(client_results.get(SEEN, {})), dict(client_results.get(UNSEEN, {}))
    seen = further.pop("", None)
    if federation.client_test is None and (trained := _training(simulation, state)) is not None:
        seen = trained if seen is None else replace(seen, score=trained.score)
    rows = _rows(train, seen, True, federation.flipped, task, _evaluated_on(federation.client_test), further)
    for client in federation.attackers:
        rows[client]["attacker"] = True
    if unseen is not None:
        results, evaluated_on = of_unseen.pop("", None), _evaluated_on(unseen.test)
        rows += _rows(unseen.train, results, False, unseen.flipped, task, evaluated_on, of_unseen)
    pooled = None
    if not is_personal(phase.client):  # otherwise there is no common model
        pooled = ClientResults(*per_client(evaluator.results(state, test.samples), test))
    return rows + _rows(test, pooled, False, None, task, "test")


def _evaluated_on(tests: ClientIndices | None) -> str:
    """The samples on which clients with these test samples are evaluated."""
    return "train" if tests is None else "test"


def _training(simulation: Simulation, state: State) -> ClientResults | None:
    """The results on the samples of the training clients, if the configuration includes them."""
    included, clients = simulation.experiment.evaluation.train_clients, simulation.federation.train
    if included == "auto":  # evaluating costs a third of training on as many samples: forward, but not backward
        included = state.totals.client_samples >= 3 * int(clients.sizes.sum())
    if not included:
        return None
    return ClientResults(*simulation.evaluator(state).on_training(state))


def _rows(
    clients: ClientIndices,
    results: ClientResults | None,
    seen: bool,
    flipped: torch.Tensor | None,
    task: Task,
    evaluated_on: str,
    further: Mapping[str, ClientResults] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The rows of some clients, or of holders of test samples."""

    def column(values: torch.Tensor | None) -> list[Any]:
        if values is None:
            return [None] * len(clients)
        return [None if value != value else value for value in values.tolist()]  # null for NaN

    missing = torch.full((len(clients),), math.nan)
    results = results or ClientResults(missing, missing)
    loss, score = column(results.loss), column(results.score)
    columns = {
        "samples": clients.sizes.tolist(),
        "loss": loss,
        task.score: score,
        "evaluated_on": [evaluated_on if known != (None, None) else None for known in zip(loss, score, strict=True)],
        "threshold": column(results.threshold),
        "appeal": [
            None if value is None else appeal for value, appeal in zip(loss, column(results.appeal), strict=True)
        ],
        "flipped": [False] * len(clients) if flipped is None else flipped.tolist(),
        **{f"{kind}loss": column(other.loss) for kind, other in further.items()},
        **{f"{kind}{task.score}": column(other.score) for kind, other in further.items()},
    }
    return [
        {"client": clients.name(number), "seen": seen, "attacker": False}
        | {name: values[number] for name, values in columns.items()}
        for number in range(len(clients))
    ]
