"""Combine the uploads of a cohort, one at a time, into one update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fedrun.execution.client_measurements import measured_samples
from fedrun.execution.context import ClientResult, ExecutionContext
from fedrun.execution.running_mean import RunningMean
from fedrun.strategies.client_state import LAST
from fedrun.strategies.server import CohortUpdate, Rows, Senders, ServerState, ServerStrategy, row_entries
from fedrun.strategies.server_contract import check_weights
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.uploads.attacks.colluding import Colluding


@dataclass(frozen=True)
class Accepted:
    """The numbers of an accepted client.

    Attributes:
        weight: its weight in the means.
        steps: SGD steps made.
        reports: its uploads that are single numbers.
        measures: measurements by the transforms of its uploads.
        squared_norm: ‖y_k − x‖²; None if not requested.
        loss: mean training loss.
    """

    weight: float
    steps: int
    reports: Mapping[str, float]
    measures: Mapping[str, float]
    squared_norm: float | None
    loss: float


class Aggregator:
    """Combines the clients' uploads, one at a time, into a :class:`CohortUpdate`.

    Only running means, and the rows and norms that the server strategy needs, are kept, never a model per client. If a
    client's upload or next state is not finite, neither is used.

    Attributes:
        client_states: the next states of the accepted clients.

    Args:
        context: context of the clients' training.
        server: the server strategy.
        state: the server's state before the round.
        clients: this rank's clients that train the model, int64 ``[n]``.
        everyone: the clients of all ranks that train the model, int64 ``[C]``, by which weights are computed.
        keep: makes lasting copies of a client's state.
    """

    def __init__(
        self,
        context: ExecutionContext,
        server: ServerStrategy,
        state: ServerState,
        clients: torch.Tensor,
        everyone: torch.Tensor,
        keep: Callable[[Vectors], Vectors],
    ) -> None:
        self._context = context
        self._server = server
        self._state = state
        self._clients = clients
        self._everyone = everyone
        self._keep = keep
        self._weights: dict[int, float] | None = None  # by client, if they do not depend on reports
        self._means: dict[str, RunningMean] = {}
        self._rows_kept: Rows = "all" if isinstance(context.attack, Colluding) else server.rows
        self._rows: torch.Tensor | None = None  # [n, r]
        self._row_of = {client: row for row, client in enumerate(clients.tolist())}
        self._origin: torch.Tensor | None = None  # [T], the broadcast parameters, if norms are measured
        if "squared_norms" in server.wants:
            self._origin = server.broadcast(state)[MODEL][: context.network.layout.trainable]
        self._accepted: dict[int, Accepted] = {}  # by client
        self._processed: list[tuple[int, int, int]] = []  # as in CohortUpdate
        self._sample_weight = 0.0
        self._loss = 0.0
        self._score = 0.0
        self.client_states: dict[int, Vectors] = {}

    def add(self, result: ClientResult, fraction: float = 1.0, counts: bool = True) -> None:
        """Add one client.

        Args:
            result: result of its local training.
            fraction: a factor of its weight.
            counts: whether its costs, losses and state are recorded here; False if another aggregator does it.
        """
        trained, client, uploads = result.trained, result.client, result.uploads
        if counts:
            backward, forward = measured_samples(self._context, int(self._context.clients.sizes[client]))
            self._processed.append((client, trained.processed + backward, trained.compared + forward))
        vectors = (*uploads.values(), *result.client_state.values())
        counted = trained.loss_sum, trained.score_sum, trained.weight_sum
        *sums, loss, score, sample_weight = _numbers([*map(_sum, vectors), *counted])
        # A sum is finite exactly if every entry is, except for an overflow of float32, which would be a failure, too.
        if not all(map(math.isfinite, sums)):
            return
        single = zip(uploads.items(), sums[: len(uploads)], strict=True)
        # not the model and other vectors that the server sends, even if they have one entry
        reports = {
            name: number for (name, vector), number in single if vector.numel() == 1 and name not in self._server.sends
        }
        weight = fraction * self._weight(client, reports)
        for name, vector in uploads.items():
            self._means.setdefault(name, RunningMean()).add(vector, weight)
        if self._rows_kept != "none":
            row = uploads[MODEL][row_entries(self._rows_kept, self._context.network.layout)]
            if self._rows is None:
                self._rows = row.new_empty(len(self._clients), len(row))
            self._rows[self._row_of[client]] = row
        squared_norm = self._squared_norm(uploads)
        mean_loss = _ratio(loss, sample_weight)
        self._accepted[client] = Accepted(weight, trained.steps, reports, result.measures, squared_norm, mean_loss)
        if not counts:
            return
        state = dict(result.client_state)
        if self._context.stores_last_upload:
            state[LAST] = uploads[MODEL]
        # also an empty state, which drops the result of idle training
        self.client_states[client] = self._keep(state)
        self._sample_weight += sample_weight
        self._loss += loss
        self._score += score

    def _squared_norm(self, uploads: Vectors) -> float | None:
        """How far a client's parameters lie from the broadcast ones, if the server strategy requests it."""
        if self._origin is None:
            return None
        moved = uploads[MODEL][: len(self._origin)] - self._origin
        return float(torch.linalg.vector_norm(moved, dtype=torch.float64)) ** 2

    def _weight(self, client: int, reports: dict[str, float]) -> float:
        if not reports or "label_counts" in self._server.wants:
            if self._weights is None:
                everyone = self._context.senders(self._everyone, self._server)
                imposed = self._context.pipeline.weights(everyone)
                weights = self._server.weights(self._state, everyone) if imposed is None else imposed
                check_weights(self._server, weights, len(self._everyone))
                self._weights = dict(zip(self._everyone.tolist(), weights.tolist(), strict=True))
            return self._weights[client]
        numbers = torch.tensor([client])
        stacked = {name: _column([value]) for name, value in reports.items()}
        sender = Senders(clients=numbers, samples=self._context.clients.sizes[numbers], reports=stacked)
        weight = self._server.weights(self._state, sender)
        check_weights(self._server, weight, 1)
        return float(weight)

    def result(self) -> CohortUpdate:
        """The cohort's update, over the clients that were accepted, in the order of selection."""
        kept = torch.tensor([client in self._accepted for client in self._clients.tolist()], dtype=torch.bool)
        clients, excluded = self._clients[kept], self._clients[~kept].tolist()
        accepted = [self._accepted[client] for client in clients.tolist()]
        norms = [one.squared_norm for one in accepted if one.squared_norm is not None]
        sample_weight = self._sample_weight
        return CohortUpdate(
            clients=clients,
            samples=self._context.clients.sizes[clients],
            reports=_columns([one.reports for one in accepted]),
            steps=torch.tensor([one.steps for one in accepted], dtype=torch.int64),
            mean={name: mean.result() for name, mean in self._means.items()},
            weights=_column(one.weight for one in accepted),
            rows=self._rows[kept] if self._rows is not None and excluded else self._rows,
            excluded=tuple(excluded),
            loss=_ratio(self._loss, sample_weight),
            score=_ratio(self._score, sample_weight),
            processed=torch.tensor(self._processed, dtype=torch.int64).reshape(-1, 3),
            sample_weight=sample_weight,
            losses=_column(one.loss for one in accepted),
            measures=_columns([one.measures for one in accepted]),
            squared_norms=None if self._origin is None else _column(norms),
        )


def _sum(vector: torch.Tensor) -> torch.Tensor:
    """The sum of a vector's entries, in float32 at least: that of many float16 numbers would overflow."""
    return vector.sum(dtype=torch.promote_types(vector.dtype, torch.float32))


def _numbers(scalars: Sequence[torch.Tensor]) -> list[float]:
    """Scalars as numbers: one wait for a GPU, not one for each."""
    if scalars[0].device.type == "cpu":
        return [scalar.item() for scalar in scalars]
    return [float(number) for number in torch.stack([scalar.double() for scalar in scalars]).tolist()]


def _ratio(total: float, weight: float) -> float:
    """A weighted mean; NaN if the weight is 0."""
    return total / weight if weight else math.nan


def _column(values: Iterable[float]) -> torch.Tensor:
    """Numbers of clients, float64 ``[n]``."""
    return torch.tensor(list(values), dtype=torch.float64)


def _columns(rows: Sequence[Mapping[str, float]]) -> Vectors:
    """The numbers of clients by name, float64 ``[n]`` each; all clients have the same names."""
    return {name: _column(row[name] for row in rows) for name in (rows[0] if rows else ())}
