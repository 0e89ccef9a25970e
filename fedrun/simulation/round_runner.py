"""A round's local work with one model or several: who trains which, and what each model is sent back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedrun.execution.aggregator import Aggregator
from fedrun.execution.context import ClientResult, CohortJob, Progress
from fedrun.execution.distributed_cohort import DistributedCohort, nothing
from fedrun.execution.executor import Executor
from fedrun.experiment.state import State
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.clustering.base import ClusteringRound, FirstUpdate
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import CohortUpdate, ServerState
from fedrun.strategies.vectors import CENTRES, MODEL, Vectors


@dataclass(frozen=True)
class RoundResult:
    """What a cohort's local work came to.

    Attributes:
        models: the M models, as they were broadcast.
        tasks: what the groups of the cohort that began at the same model were asked to do.
        updates: what each model is sent back; None: nothing, and so the model stays.
        memory: what clients remember after it (of several ranks: this one's).
        membership: what each model counts for each client, ``[N, M]``; None: there are no clusters.
        client_samples: samples processed in training.
        forward_samples: samples processed by forward passes only.
    """

    models: tuple[ServerState, ...]
    tasks: tuple[CohortJob, ...]
    updates: tuple[CohortUpdate | None, ...]
    memory: ClientStates
    membership: torch.Tensor | None
    client_samples: int
    forward_samples: int

    @property
    def some(self) -> list[CohortUpdate]:
        """The updates of at least one client."""
        return [update for update in self.updates if update is not None and len(update.clients)]

    @property
    def excluded(self) -> list[int]:
        """Clients whose upload was not finite."""
        return sorted({client for update in self.updates if update is not None for client in update.excluded})

    @property
    def loss(self) -> float:
        """Mean training loss over the samples that the accepted clients processed."""
        return _mean([(update.loss, update.accepted_samples) for update in self.some])

    @property
    def accuracy(self) -> float:
        """Share of those samples that were predicted correctly when they were processed."""
        return _mean([(update.accuracy, update.accepted_samples) for update in self.some])


def _mean(parts: Sequence[tuple[float, int]]) -> float:
    """The weighted mean of values, without those that are not known."""
    known = [(value, weight) for value, weight in parts if not math.isnan(value)]
    if len(known) == 1:
        return known[0][0]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else math.nan


@dataclass(frozen=True)
class RoundRunner:
    """How rounds of local work are carried out.

    All of a round's trainings, of whichever models, are shared out over the ranks together; each rank folds what its
    own clients send into updates, and the ranks' updates of a model are combined into one.

    Attributes:
        executor: trains this rank's clients.
        team: the executors of all ranks.
        phase: whose rounds.
    """

    executor: Executor
    team: DistributedCohort
    phase: Phase

    def of(self, state: State, cohort: torch.Tensor, progress: Progress) -> RoundResult:
        """The work of a round's cohort, int64 ``[C]``."""
        clustering, membership, looked = self.phase.clustering, state.membership, 0
        if clustering.infers and membership is None:
            return self._inferring(state, cohort, progress)
        if clustering.several:
            models = [server.model for server in state.models]
            known = membership if membership is not None else self._nobody(len(models))
            turn = ClusteringRound(state.round, cohort, models, known, state.memory, self.team.asked)
            choice = clustering.chosen(self.executor.context, turn)
            membership, looked = choice.membership, choice.forward_samples
        shares = torch.ones(len(cohort), 1) if membership is None else membership[cohort]
        soft = bool((shares.count_nonzero(1) > 1).any())
        work = (self._mixed if soft else self._divided)(state, cohort, shares, progress)
        return replace(work, membership=membership, forward_samples=work.forward_samples + looked)

    def _nobody(self, models: int) -> torch.Tensor:
        return torch.zeros(len(self.executor.context.clients), models, dtype=torch.float64)

    def _task(self, state: State, model: int, cohort: torch.Tensor) -> CohortJob:
        """What clients that begin at this model are asked to do."""
        wanted, current = self.phase.client.needs | {MODEL}, state.models[model]
        received = {name: vector for name, vector in self.phase.server.broadcast(current).items() if name in wanted}
        if CENTRES in wanted:
            received[CENTRES] = torch.stack([each.model for each in state.models])
        return CohortJob(
            cohort=cohort,
            round=state.round,
            received=received,
            client_states=state.memory,
            steps=self.phase.server.steps(current, cohort, self.executor.usual_steps[cohort]),
        )

    def _divided(self, state: State, cohort: torch.Tensor, shares: torch.Tensor, progress: Progress) -> RoundResult:
        """Every model is trained by the clients that belong to it alone."""
        numbers, members = _grouped(cohort, shares.argmax(1))
        tasks = [self._task(state, model, clients) for model, clients in zip(numbers, members, strict=True)]
        mine = self.team.shares(tasks)
        memory, updates = state.memory, {}
        for model, share, each in zip(numbers, mine, _in_turn(progress, mine, len(cohort)), strict=True):
            if len(share.cohort):
                task = replace(share, client_states=memory)
                updates[model], memory = self.executor.run(self.phase.server, state.models[model], task, each)
        return self._work(state.models, tasks, cohort, shares, updates, memory)

    def _mixed(self, state: State, cohort: torch.Tensor, shares: torch.Tensor, progress: Progress) -> RoundResult:
        """Every client begins at the model that counts most for it, and is folded into each by what that counts."""
        nearest = shares.argmax(1)
        tasks = [
            replace(self._task(state, model, clients), mixture=shares[nearest == model])
            for model, clients in zip(*_grouped(cohort, nearest), strict=True)
        ]
        mine = self.team.shares(tasks)
        visits = (
            visit
            for share, each in zip(mine, _in_turn(progress, mine, len(cohort)), strict=True)
            for visit in self._visits(share, each)
        )
        updates, memory = self._folded(state.models, mine, cohort, shares, visits)
        return self._work(state.models, tasks, cohort, shares, updates, memory)

    def _inferring(self, state: State, cohort: torch.Tensor, progress: Progress) -> RoundResult:
        """All clients train the one model; their models say who belongs where, and are averaged there."""
        task, keep, initial = self._task(state, 0, cohort), state.memory.keep, state.server.model
        (share,) = mine = self.team.shares([task])
        (each,) = _in_turn(progress, mine, len(cohort))
        visits = []
        for client, visit in self._visits(share, each):
            uploads = keep(visit.uploads)
            kept = keep(visit.client_state)
            start = task.received[MODEL]  # rather than a view into what a group of clients started at
            visits.append(
                (client, replace(visit, start=start, model=uploads[MODEL], uploads=uploads, client_state=kept))
            )
        work = self.executor.context
        rate = work.local.rate(state.round)
        sent = {client: FirstUpdate(visit.model, visit.trained.steps, rate) for client, visit in visits}
        own = {client: self.phase.clustering.told(work, initial, each) for client, each in sent.items()}
        told = torch.stack([each for _, each in sorted(self.team.brought_together(own).items())])
        membership = self.team.agreed(self.phase.clustering.inferred(work, told))
        shares, models = membership[cohort], (state.server,) * membership.shape[1]
        on_device = ((client, replace(visit, uploads=self._back(visit.uploads))) for client, visit in visits)
        updates, memory = self._folded(models, mine, cohort, shares, on_device)
        return replace(self._work(models, [task], cohort, shares, updates, memory), membership=membership)

    def _visits(self, share: CohortJob, progress: Progress) -> Iterator[tuple[int, ClientResult]]:
        """A task's visits, each with its client's number."""
        if len(share.cohort):
            for visit in self.executor.visits(share, progress):
                yield int(share.cohort[visit.position]), visit

    def _back(self, vectors: Vectors) -> Vectors:
        device = self.executor.context.network.vector.device
        return {name: vector.to(device) for name, vector in vectors.items()}

    def _folded(
        self,
        models: tuple[ServerState, ...],
        mine: Sequence[CohortJob],
        cohort: torch.Tensor,
        shares: torch.Tensor,
        visits: Iterable[tuple[int, ClientResult]],
    ) -> tuple[dict[int, CohortUpdate], ClientStates]:
        """Fold each of this rank's visits into every model by what that counts for the client.

        Args:
            models: M of them.
            mine: this rank's part of the round's tasks.
            cohort: int64 ``[C]``, on all ranks.
            shares: what each model counts for each of the cohort, ``[C, M]``.
            visits: with the numbers of their clients.

        Returns:
            What this rank's clients send back to those models that count for some of them, by number, and what they
            remember after it.
        """
        is_mine = torch.isin(cohort, torch.cat([share.cohort for share in mine]))
        cohort, shares = cohort[is_mine], shares[is_mine]
        row = {client: number for number, client in enumerate(cohort.tolist())}
        nearest = shares.argmax(1)
        gatherings: dict[int, Aggregator] = {}
        places: dict[int, dict[int, int]] = {}  # of clients among a model's members
        for model, server in enumerate(models):
            members = cohort[shares[:, model] > 0]
            if len(members):
                gatherings[model] = Aggregator(
                    self.executor.context, self.phase.server, server, replace(mine[0], cohort=members)
                )
                places[model] = {client: index for index, client in enumerate(members.tolist())}
        for client, visit in visits:
            for model, gathering in gatherings.items():
                if client in places[model]:
                    own, counts = replace(visit, position=places[model][client]), nearest[row[client]] == model
                    gathering.add(own, float(shares[row[client], model]), bool(counts))
        updates = {}
        for model, gathering in gatherings.items():
            counted = replace(mine[0], cohort=cohort[nearest == model])
            updates[model] = self.executor.with_costs(gathering.result(), counted)
        remembered = {
            client: held for gathering in gatherings.values() for client, held in gathering.client_states.items()
        }
        return updates, mine[0].client_states.updated(remembered)

    def _work(
        self,
        models: tuple[ServerState, ...],
        tasks: Sequence[CohortJob],
        cohort: torch.Tensor,
        shares: torch.Tensor,
        updates: Mapping[int, CohortUpdate],
        memory: ClientStates,
    ) -> RoundResult:
        """What the round came to on all ranks, from this rank's updates by the number of their model."""
        trained = [model for model in range(len(models)) if (shares[:, model] > 0).any()]
        combined = self.team.combined(
            [updates.get(model) or nothing() for model in trained],
            [cohort[shares[:, model] > 0] for model in trained],
            [self.phase.server.broadcast(models[model]) for model in trained],
        )
        by_model = dict(zip(trained, combined, strict=True))
        return RoundResult(
            models,
            tuple(tasks),
            tuple(by_model.get(model) for model in range(len(models))),
            memory,
            None,
            sum(update.client_samples for update in combined),
            sum(update.forward_samples for update in combined),
        )


def _grouped(cohort: torch.Tensor, models: torch.Tensor) -> tuple[list[int], list[torch.Tensor]]:
    """The models that some of the cohort begin at (int64 ``[C]`` each), and who begins there."""
    numbers = sorted(set(models.tolist()))
    return numbers, [cohort[models == model] for model in numbers]


def _in_turn(progress: Progress, shares: Sequence[CohortJob], whole: int) -> list[Progress]:
    """How the parts of one rank's share of a cohort tell their progress, one after the other, as if all ranks' clients
    were done in step with its own.
    """
    own = sum(len(share.cohort) for share in shares)
    befores = itertools.accumulate((len(share.cohort) for share in shares[:-1]), initial=0)

    def beyond(before: int) -> Progress:
        return lambda done: progress((before + done) * whole // own)

    return [beyond(before) for before in befores]
