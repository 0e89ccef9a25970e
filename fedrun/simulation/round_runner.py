"""A round's local work: which client trains which model, and which updates each model receives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedrun.execution.aggregator import Aggregator
from fedrun.execution.context import ClientResult, CohortJob, Progress
from fedrun.execution.distributed_cohort import DistributedCohort
from fedrun.execution.executor import Executor
from fedrun.experiment.aggregation.base import Aggregation
from fedrun.experiment.state import State
from fedrun.strategies.client_contract import check_received
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.clustering.base import Assignment, ClusteringRound
from fedrun.strategies.contract import check_counts, versions
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import CohortUpdate, ServerState
from fedrun.strategies.vectors import CENTRES, MODEL, Vectors, on_device


@dataclass(frozen=True)
class RoundResult:
    """The result of a cohort's local work.

    Attributes:
        models: the M broadcast models.
        jobs: one for each group of clients that started at the same model.
        updates: the update of each model, an empty one if no client trained it.
        client_states: after the round (with several ranks: those on this rank).
        membership: the weight of each model for each client, ``[N, M]``; None: no clusters.
        processed: the samples that each participant has processed, int64 ``[C, 3]``, as in :class:`CohortUpdate`.
    """

    models: tuple[ServerState, ...]
    jobs: tuple[CohortJob, ...]
    updates: tuple[CohortUpdate, ...]
    client_states: ClientStates
    membership: torch.Tensor | None
    processed: torch.Tensor

    @property
    def accepted(self) -> list[CohortUpdate]:
        """The updates to which at least one client contributed."""
        return [update for update in self.updates if len(update.clients)]

    @property
    def excluded(self) -> list[int]:
        """Clients whose upload was not finite."""
        return sorted({client for update in self.updates for client in update.excluded})

    @property
    def loss(self) -> float:
        """Mean training loss over the samples that the accepted clients processed."""
        return _mean([(update.loss, update.sample_weight) for update in self.accepted])

    @property
    def score(self) -> float:
        """Mean of the task's score over those samples, when they were processed."""
        return _mean([(update.score, update.sample_weight) for update in self.accepted])


def _mean(parts: Sequence[tuple[float, float]]) -> float:
    """The weighted mean of the values that are not NaN."""
    known = [(value, weight) for value, weight in parts if not math.isnan(value)]
    if len(known) == 1:
        return known[0][0]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else math.nan


@dataclass(frozen=True)
class RoundRunner:
    """Runs the local work of rounds.

    Every client starts at the model with the largest weight for it and trains once. Its upload is added to the mean of
    each model with the client's weight for it. The ranks share all of a round's trainings. Each rank adds the uploads
    of its clients to partial updates, and the ranks' partial updates of a model are combined into one.

    Attributes:
        executor: trains this rank's clients.
        distributed: divides the work among the ranks.
        phase: phase of the rounds.
        aggregation: what the server makes of uploads from older models.
    """

    executor: Executor
    distributed: DistributedCohort
    phase: Phase
    aggregation: Aggregation

    def run(
        self, state: State, cohort: torch.Tensor, progress: Progress, started: Mapping[int, int] | None = None
    ) -> RoundResult:
        """The local work of a round.

        Args:
            state: before the round.
            cohort: its participants, int64 ``[C]``.
            progress: called with the number of finished clients.
            started: with asynchronous aggregation the server step from whose model each participant started.
        """
        infers = self.phase.clustering.infers and state.membership is None
        assignment = None if infers else self._assign(state, cohort)
        weights = torch.ones(len(cohort), 1) if assignment is None else assignment.membership[cohort]
        jobs = self._started_jobs(state, cohort, started) if started else self._jobs(state, cohort, weights)
        local_jobs = self.distributed.local_jobs(jobs)
        results = self._train(local_jobs, len(cohort), progress)
        if started:
            results = self._arrived(results, state, started)
        models = state.models
        if infers:  # the models of the first round determine the clusters, and are added to the updates after that
            stored = [self._stored(result, state, jobs[0]) for result in results]
            assignment = Assignment(self._infer(state, stored))
            weights = assignment.membership[cohort]
            models = (state.server,) * weights.shape[1]
            results = map(self._on_device, stored)
        members = {model: cohort[weights[:, model] > 0] for model in weights.any(0).nonzero().flatten().tolist()}
        updates, client_states = self._fold(models, local_jobs, cohort, weights, members, results)
        combined = self.distributed.combine(
            [updates.get(model, CohortUpdate.empty()) for model in members],
            list(members.values()),
            [self.phase.server.broadcast(models[model]) for model in members],
        )
        by_model = dict(zip(members, combined, strict=True))
        processed = torch.cat([update.processed for update in combined])
        if assignment is not None and assignment.forward_passes is not None:
            clients = processed[:, 0]
            processed[:, 2] += assignment.forward_passes[clients] * self.executor.context.clients.sizes[clients]
        return RoundResult(
            models=models,
            jobs=tuple(jobs),
            updates=tuple(by_model.get(model, CohortUpdate.empty()) for model in range(len(models))),
            client_states=client_states,
            membership=None if assignment is None else assignment.membership,
            processed=processed,
        )

    # --- before training ---

    def _assign(self, state: State, cohort: torch.Tensor) -> Assignment | None:
        """The weight of each model for each client in this round; None: no clusters."""
        clustering, membership = self.phase.clustering, state.membership
        if not clustering.several:
            return None if membership is None else Assignment(membership)
        models = self._sent_models(state)
        if membership is None:
            membership = torch.zeros(len(self.executor.context.clients), len(models), dtype=torch.float64)
        round = ClusteringRound(state.round, cohort, models, membership, state.client_states, self.distributed.query)
        return clustering.assign(self.executor.context, round)

    def _jobs(self, state: State, cohort: torch.Tensor, weights: torch.Tensor) -> list[CohortJob]:
        """One job for each model at which clients of the cohort start; weights ``[C, M]``."""
        nearest, mixed = weights.argmax(1), bool((weights.count_nonzero(1) > 1).any())
        return [
            self._job(state, model, cohort[nearest == model], weights[nearest == model] if mixed else None)
            for model in sorted(set(nearest.tolist()))
        ]

    def _job(self, state: State, model: int, clients: torch.Tensor, mixture: torch.Tensor | None) -> CohortJob:
        """The job of the clients (int64 ``[C]``) that start at a model."""
        server = state.models[model]
        received = self.phase.broadcast(server)
        if (models := self.phase.models_for(server, clients)) is not None:
            received[MODEL] = models
        if CENTRES in self.phase.client.needs:
            received[CENTRES] = torch.stack(self._sent_models(state))
        received |= self.executor.context.pipeline.broadcast(server.transforms)
        round = self.phase.round(state.round, model, state.membership)
        steps = self.phase.server.steps(server, clients, self.executor.usual_steps[clients], round)
        check_counts(self.phase.server, "steps", steps, len(clients), 1)
        return self._downloaded(CohortJob(clients, state.round, received, state.client_states, steps, mixture=mixture))

    def _downloaded(self, job: CohortJob) -> CohortJob:
        """A job with the model as the clients receive it."""
        pipeline, whole = self.executor.context.pipeline, job.received[MODEL]
        if not pipeline.changes_downloads:
            return job
        models = whole if whole.ndim > 1 else whole[None]
        rounded = torch.stack([pipeline.download(model) for model in models]).view_as(whole)
        return replace(job, received={**job.received, MODEL: rounded}, lost=whole - rounded)

    def _started_jobs(self, state: State, cohort: torch.Tensor, started: Mapping[int, int]) -> list[CohortJob]:
        """One job for each version of the model at which clients of the cohort have started."""
        starts = torch.tensor([started[client] for client in cohort.tolist()])
        received = self._received(state)
        return [
            self._downloaded(
                CohortJob(cohort[starts == version], version, dict(received[version]), state.client_states)
            )
            for version in sorted(set(starts.tolist()))
        ]

    def _received(self, state: State) -> dict[int, Vectors]:
        """What clients have received or receive now, by version."""
        return {**state.training.received, state.round: self.phase.broadcast(state.server)}

    def _arrived(
        self, results: Iterable[ClientResult], state: State, started: Mapping[int, int]
    ) -> Iterator[ClientResult]:
        """The results with the models that the server aggregates in place of the uploads."""
        received = self._received(state)
        current, trainable = received[state.round][MODEL], self.executor.context.network.layout.trainable
        for result in results:
            version = started[result.client]
            arrived = self.aggregation.arrived(
                result.uploads[MODEL], received[version][MODEL], current, state.round - version, trainable
            )
            yield replace(result, uploads={**result.uploads, MODEL: arrived})
            del result, arrived

    def _sent_models(self, state: State) -> list[torch.Tensor]:
        """The models ``[P]`` that are sent; some servers evaluate others (FedACG, FedExP)."""
        return [self.phase.server.broadcast(server)[MODEL] for server in state.models]

    # --- training ---

    def _train(self, jobs: Sequence[CohortJob], whole: int, progress: Progress) -> Iterator[ClientResult]:
        """Train this rank's clients, and yield the result of each.

        Args:
            jobs: jobs of this rank.
            whole: number of the round's participants on all ranks.
            progress: called as if the other ranks finished clients at the same pace as this rank.
        """
        sizes = [len(job.cohort) for job in jobs]
        for job, earlier in zip(jobs, itertools.accumulate(sizes, initial=0), strict=False):
            if len(job.cohort):
                before = versions(job.received)
                # holds no result, so that its vectors are freed before the next client trains
                yield from self.executor.client_results(job, _scaled(progress, earlier, whole, sum(sizes)))
                check_received(self.phase.client, job.received, before)

    # --- the round that infers clusters ---

    def _stored(self, result: ClientResult, state: State, job: CohortJob) -> ClientResult:
        """A lasting copy of a client's result."""
        keep = state.client_states.keep
        uploads = keep(result.uploads)
        return replace(
            result,
            start=job.received[MODEL],
            model=uploads[MODEL],
            uploads=uploads,
            client_state=keep(result.client_state),
        )

    def _on_device(self, result: ClientResult) -> ClientResult:
        """A stored result with its uploads and its client state on the device."""
        device = self.executor.context.network.vector.device
        uploads, client_state = on_device(result.uploads, device), on_device(result.client_state, device)
        return replace(result, uploads=uploads, client_state=client_state)

    def _infer(self, state: State, results: Sequence[ClientResult]) -> torch.Tensor:
        """The membership ``[N, M]`` of all clients, from the first models of all of them."""
        context, clustering = self.executor.context, self.phase.clustering
        estimates = {
            result.client: clustering.estimate(context, state.server.model, result.model, result.trained.steps)
            for result in results
        }
        by_client = self.distributed.all_gather(estimates)
        stacked = torch.stack([by_client[client] for client in sorted(by_client)])
        return self.distributed.ranks.broadcast(clustering.infer(context, stacked))  # rounding may differ between ranks

    # --- after training ---

    def _fold(
        self,
        models: Sequence[ServerState],
        jobs: Sequence[CohortJob],
        cohort: torch.Tensor,
        weights: torch.Tensor,
        members: Mapping[int, torch.Tensor],
        results: Iterable[ClientResult],
    ) -> tuple[dict[int, CohortUpdate], ClientStates]:
        """Fold the result of each of this rank's clients into every model, with the model's weight for the client.

        The costs, the losses and the state of a client are recorded once, with the model with the largest weight.

        Args:
            models: M of them.
            jobs: jobs of this rank.
            cohort: int64 ``[C]``, of all ranks.
            weights: the weight of each model for each client of the cohort, ``[C, M]``.
            members: the clients of the cohort that train each model, by its number.
            results: the clients' results.

        Returns:
            This rank's update of each model that some of its clients have trained, by number, and the client states.
        """
        states, context = jobs[0].client_states, self.executor.context
        here = torch.cat([job.cohort for job in jobs])
        local = {model: clients[torch.isin(clients, here)] for model, clients in members.items()}
        nearest = dict(zip(cohort.tolist(), weights.argmax(1).tolist(), strict=True))
        rows = dict(zip(cohort.tolist(), weights, strict=True))
        aggregators = {
            model: Aggregator(context, self.phase.server, models[model], clients, members[model], states.keep)
            for model, clients in local.items()
            if len(clients)
        }
        for result in results:
            for model, aggregator in aggregators.items():
                if (fraction := float(rows[result.client][model])) > 0:
                    aggregator.add(result, fraction, nearest[result.client] == model)
            del result
        updates, accepted = {}, dict[int, Vectors]()
        for model, aggregator in aggregators.items():
            updates[model] = aggregator.result()
            accepted |= aggregator.client_states
        excluded = {client for update in updates.values() for client in update.excluded}
        return updates, self.executor.next_states(states, accepted, excluded)


def _scaled(progress: Progress, earlier: int, whole: int, local: int) -> Progress:
    """Reports a job's progress on this rank as that of the whole cohort: the ranks are taken to be equally fast.

    Args:
        progress: called with a number of the cohort's clients.
        earlier: number of this rank's clients in earlier jobs.
        whole: number of the cohort's clients.
        local: number of this rank's clients.
    """
    return lambda done: progress((earlier + done) * whole // local)
