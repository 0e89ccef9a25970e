"""Combine the uploads of a cohort, one at a time, into one update."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fedrun.execution.context import ClientResult, CohortJob, ExecutionContext
from fedrun.strategies.client_state import LAST
from fedrun.strategies.contract import check_weights
from fedrun.strategies.server import CohortUpdate, Rows, Senders, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors


class Aggregator:
    """Combines the clients' uploads, one at a time, into a :class:`CohortUpdate`.

    Only running means, and the rows and norms that the server strategy needs, are kept, never a model per client. A
    client whose upload or next state is not finite is excluded with both.

    Attributes:
        client_states: the next states of the accepted clients.

    Args:
        context: of the clients' training.
        server: the server strategy.
        state: of the server before the round.
        job: with this rank's part of the cohort.
        everyone: the cohort of all ranks, int64 ``[C]``, by which weights are computed.
    """

    def __init__(
        self,
        context: ExecutionContext,
        server: ServerStrategy,
        state: ServerState,
        job: CohortJob,
        everyone: torch.Tensor,
    ) -> None:
        self._context = context
        self._server = server
        self._state = state
        self._keep = job.client_states.keep
        self.cohort = job.cohort
        self._samples = context.clients.sizes[job.cohort]
        self._everyone = everyone
        self._weights: dict[int, float] | None = None  # by client, if they do not depend on reports
        self._total = 0.0
        self._means: dict[str, torch.Tensor] = {}
        self._rows_kept: Rows = "all" if context.attack is not None and context.attack.needs_rows else server.rows
        self._measures: dict[int, Mapping[str, float]] = {}
        self._origin: torch.Tensor | None = None  # [T], the broadcast parameters, if norms are measured
        if "squared_norms" in server.wants:
            self._origin = server.broadcast(state)[MODEL][: context.network.layout.trainable]
        self._squared_norms: dict[int, float] = {}
        self._rows: torch.Tensor | None = None  # [C, r], by position
        self._reports: dict[int, dict[str, float]] = {}
        self._steps: dict[int, int] = {}
        self._client_weights: dict[int, float] = {}
        self._client_samples = 0
        self._forward_samples = 0
        self._accepted_samples = 0
        self._loss = 0.0
        self._score = 0.0
        self.client_states: dict[int, Vectors] = {}

    def add(self, result: ClientResult, fraction: float = 1.0, counts: bool = True) -> None:
        """Add one client.

        Args:
            result: of its local training.
            fraction: a factor of its weight.
            counts: whether its costs, losses and state are recorded here; False if another aggregator does it.
        """
        trained, position, uploads = result.trained, result.position, result.uploads
        if counts:
            self._client_samples += trained.processed + trained.measured
            self._forward_samples += trained.compared
        # A sum is finite exactly if every entry is, except for an overflow, which would be a failure, too.
        if not all(bool(vector.sum().isfinite()) for vector in (*uploads.values(), *result.client_state.values())):
            return
        reports = {name: float(vector) for name, vector in uploads.items() if vector.numel() == 1}
        weight = fraction * self._weight(position, reports)
        self._total += weight
        self._client_weights[position] = weight
        for name, vector in uploads.items():
            if name in self._means:
                # mean + (weight / total) (vector − mean): an entry that no client changed keeps its exact value;
                # Σ w x / Σ w has a rounding error, which a server's Adam would amplify to a full step.
                self._means[name].lerp_(vector, weight / self._total if self._total else 0.0)
            else:
                self._means[name] = vector.clone()
        rows = self._rows_kept
        if rows != "none":
            model = uploads[MODEL]
            layout = self._context.network.layout
            row = {"head": model[layout.head], "parameters": model[: layout.trainable], "all": model}[rows]
            if self._rows is None:
                self._rows = row.new_empty(len(self.cohort), len(row))
            self._rows[position] = row
        if self._origin is not None:
            moved = uploads[MODEL][: len(self._origin)] - self._origin
            self._squared_norms[position] = float(torch.linalg.vector_norm(moved, dtype=torch.float64)) ** 2
        self._reports[position] = reports
        self._steps[position] = trained.steps
        self._measures[position] = result.measures
        if not counts:
            return
        state = dict(result.client_state)
        if self._context.stores_last_upload:
            state[LAST] = uploads[MODEL]
        # also an empty state, which drops the result of idle training
        self.client_states[int(self.cohort[position])] = self._keep(state)
        self._accepted_samples += trained.processed
        self._loss += float(trained.loss_sum)
        self._score += float(trained.score_sum)

    def _weight(self, position: int, reports: dict[str, float]) -> float:
        if not reports or "label_counts" in self._server.wants:
            if self._weights is None:
                everyone = self._context.senders(self._everyone, self._server)
                imposed = self._context.pipeline.weights(everyone)
                weights = self._server.weights(self._state, everyone) if imposed is None else imposed
                check_weights(self._server, weights, len(self._everyone))
                self._weights = dict(zip(self._everyone.tolist(), weights.tolist(), strict=True))
            return self._weights[int(self.cohort[position])]
        one = slice(position, position + 1)
        stacked = {name: torch.tensor([value], dtype=torch.float64) for name, value in reports.items()}
        sender = Senders(clients=self.cohort[one], samples=self._samples[one], reports=stacked)
        return float(self._server.weights(self._state, sender))

    def result(self) -> CohortUpdate:
        """The cohort's update, over the clients that were accepted, in the order of selection."""
        order = sorted(self._steps)
        accepted = torch.tensor(order, dtype=torch.int64)
        left_out = sorted(set(range(len(self.cohort))) - set(order))
        names = self._reports[order[0]] if order else ()
        measured = self._measures[order[0]] if order else ()
        return CohortUpdate(
            clients=self.cohort[accepted],
            samples=self._samples[accepted],
            reports={
                name: torch.tensor([self._reports[position][name] for position in order], dtype=torch.float64)
                for name in names
            },
            steps=torch.tensor([self._steps[position] for position in order], dtype=torch.int64),
            mean=self._means,
            weights=torch.tensor([self._client_weights[position] for position in order], dtype=torch.float64),
            rows=self._rows[accepted] if self._rows is not None and left_out else self._rows,
            excluded=tuple(int(self.cohort[position]) for position in left_out),
            loss=self._loss / self._accepted_samples if self._accepted_samples else float("nan"),
            score=self._score / self._accepted_samples if self._accepted_samples else float("nan"),
            client_samples=self._client_samples,
            forward_samples=self._forward_samples,
            accepted_samples=self._accepted_samples,
            measures={
                name: torch.tensor([self._measures[position][name] for position in order], dtype=torch.float64)
                for name in measured
            },
            squared_norms=None
            if self._origin is None
            else torch.tensor([self._squared_norms[position] for position in order], dtype=torch.float64),
        )
