"""A round's local work with one model or several: who trains which, and what each model is sent back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedrun.client_memory import ClientMemory
from fedrun.clustering.base import Clustering, Place, Sent, Turn
from fedrun.executors.base import Executor, Gathering, Progress, Task, Visit
from fedrun.executors.distributed import Distributed
from fedrun.state import State
from fedrun.strategies.base import CENTRES, MODEL, ClientHalf, CohortUpdate, ServerHalf, ServerState, Vectors


@dataclass(frozen=True)
class Work:
    """What a cohort's local work came to.

    Attributes:
        models: the M models, as they were broadcast.
        tasks: what the groups of the cohort that began at the same model were asked to do.
        updates: what each model is sent back; None: nothing, and so the model stays.
        memory: what clients remember after it.
        membership: what each model counts for each client, ``[N, M]``; None: there are no clusters.
        client_samples: samples processed in training.
        forward_samples: samples processed by forward passes only.
    """

    models: tuple[ServerState, ...]
    tasks: tuple[Task, ...]
    updates: tuple[CohortUpdate | None, ...]
    memory: ClientMemory
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
        """Mean training loss over the samples processed."""
        return _mean([(update.loss, update.client_samples) for update in self.some])

    @property
    def accuracy(self) -> float:
        """Share of those samples that were predicted correctly when they were processed."""
        return _mean([(update.accuracy, update.client_samples) for update in self.some])


def _mean(parts: Sequence[tuple[float, int]]) -> float:
    """The weighted mean of values, without those that are not known."""
    known = [(value, weight) for value, weight in parts if not math.isnan(value)]
    if len(known) == 1:
        return known[0][0]
    return sum(value * weight for value, weight in known) / sum(weight for _, weight in known) if known else math.nan


@dataclass(frozen=True)
class LocalWork:
    """How rounds of local work are carried out.

    Attributes:
        executor: trains clients.
        team: carries out whole tasks: the executor, or those of several processes.
        client: the strategy's client half.
        server: its server half.
        clustering: who belongs to which model.
        place: what that may look at.
        fusion: the factor by which idle displacements move a start, for each round.
    """

    executor: Executor
    team: Executor | Distributed
    client: ClientHalf
    server: ServerHalf
    clustering: Clustering
    place: Place
    fusion: Callable[[int], float]

    def of(self, state: State, cohort: torch.Tensor, progress: Progress) -> Work:
        """The work of a round's cohort, int64 ``[C]``."""
        clustering, membership, looked = self.clustering, state.membership, 0
        if clustering.infers and membership is None:
            return self._inferring(state, cohort, progress)
        if clustering.several:
            models = [server.model for server in state.models]
            known = membership if membership is not None else self._nobody(len(models))
            choice = clustering.chosen(self.place, Turn(state.round, cohort, models, known, state.memory))
            membership, looked = choice.membership, choice.forward_samples
        shares = torch.ones(len(cohort), 1) if membership is None else membership[cohort]
        soft = bool((shares.count_nonzero(1) > 1).any())
        work = (self._mixed if soft else self._divided)(state, cohort, shares, progress)
        return replace(work, membership=membership, forward_samples=work.forward_samples + looked)

    def _nobody(self, models: int) -> torch.Tensor:
        return torch.zeros(len(self.place.clients), models, dtype=torch.float64)

    def _task(self, state: State, model: int, cohort: torch.Tensor, memory: ClientMemory) -> Task:
        """What clients that begin at this model are asked to do."""
        wanted, server = self.client.needs | {MODEL}, state.models[model]
        received = {name: vector for name, vector in self.server.broadcast(server).items() if name in wanted}
        if CENTRES in wanted:
            received[CENTRES] = torch.stack([server.model for server in state.models])
        return Task(
            cohort=cohort,
            round=state.round,
            received=received,
            memory=memory,
            steps=self.server.steps(server, cohort, self.executor.usual_steps[cohort]),
            fusion=self.fusion(state.round),
        )

    def _divided(self, state: State, cohort: torch.Tensor, shares: torch.Tensor, progress: Progress) -> Work:
        """Every model is trained by the clients that belong to it alone."""
        memory, done = state.memory, 0
        updates: list[CohortUpdate | None] = []
        tasks = []
        for model, server in enumerate(state.models):
            members = cohort[shares[:, model] > 0]
            if not len(members):
                updates.append(None)
                continue
            task = self._task(state, model, members, memory)
            update, memory = self.team.run(self.server, server, task, _beyond(progress, done))
            updates.append(update)
            tasks.append(task)
            done += len(members)
        made = [update for update in updates if update is not None]
        processed = sum(update.client_samples for update in made)
        forward = sum(update.forward_samples for update in made)
        return Work(state.models, tuple(tasks), tuple(updates), memory, None, processed, forward)

    def _mixed(self, state: State, cohort: torch.Tensor, shares: torch.Tensor, progress: Progress) -> Work:
        """Every client begins at the model that counts most for it, and is folded into each by what that counts."""
        nearest = shares.argmax(1)
        tasks: list[Task] = []
        visits = []
        for model in sorted(set(nearest.tolist())):
            positions = (nearest == model).nonzero().flatten()
            task = replace(self._task(state, model, cohort[positions], state.memory), mixture=shares[positions])
            visits.append(self._placed(task, positions, _beyond(progress, sum(len(one.cohort) for one in tasks))))
            tasks.append(task)
        every = (visit for group in visits for visit in group)
        return self._folded(state.models, tasks, cohort, every, shares)

    def _placed(self, task: Task, positions: torch.Tensor, progress: Progress) -> Iterator[Visit]:
        """A task's visits, with their positions in the whole cohort."""
        for visit in self.executor.visits(task, progress):
            yield replace(visit, position=int(positions[visit.position]))

    def _inferring(self, state: State, cohort: torch.Tensor, progress: Progress) -> Work:
        """All clients train the one model; their models say who belongs where, and are averaged there."""
        task, keep = self._task(state, 0, cohort, state.memory), state.memory.keep
        visits = []
        for visit in self.executor.visits(task, progress):
            uploads = keep(visit.uploads)
            kept = keep(visit.memory)
            start = task.received[MODEL]  # rather than a view into what a group of clients started at
            visits.append(replace(visit, start=start, model=uploads[MODEL], uploads=uploads, memory=kept))
        by_client = {int(cohort[visit.position]): visit for visit in visits}
        rate = self.place.local.rate(state.round)
        sent = [Sent(by_client[client].model, by_client[client].trained.steps, rate) for client in sorted(by_client)]
        membership = self.clustering.inferred(self.place, state.server.model, sent)
        models = (state.server,) * membership.shape[1]
        on_device = (replace(visit, uploads=self._back(visit.uploads)) for visit in visits)
        work = self._folded(models, [task], cohort, on_device, membership[cohort])
        return replace(work, membership=membership)

    def _back(self, vectors: Vectors) -> Vectors:
        device = self.place.network.vector.device
        return {name: vector.to(device) for name, vector in vectors.items()}

    def _folded(
        self,
        models: tuple[ServerState, ...],
        tasks: Sequence[Task],
        cohort: torch.Tensor,
        visits: Iterable[Visit],
        shares: torch.Tensor,
    ) -> Work:
        """Fold each visit into every model by what that counts for the client, ``shares`` ``[C, M]``."""
        nearest = shares.argmax(1).tolist()
        gatherings: dict[int, Gathering] = {}
        places: dict[int, Mapping[int, int]] = {}  # of the cohort's positions among a model's members
        for model, server in enumerate(models):
            members = (shares[:, model] > 0).nonzero().flatten()
            if len(members):
                task = replace(tasks[0], cohort=cohort[members])
                gatherings[model] = Gathering(self.executor.workplace, self.server, server, task)
                places[model] = {position: index for index, position in enumerate(members.tolist())}
        for visit in visits:
            for model, gathering in gatherings.items():
                if visit.position in places[model]:
                    own = replace(visit, position=places[model][visit.position])
                    gathering.add(own, float(shares[visit.position, model]), nearest[visit.position] == model)
        updates = {model: gathering.result() for model, gathering in gatherings.items()}
        remembered = {client: held for gathering in gatherings.values() for client, held in gathering.memory.items()}
        return Work(
            models,
            tuple(tasks),
            tuple(updates.get(model) for model in range(len(models))),
            tasks[0].memory.updated(remembered),
            None,
            sum(update.client_samples for update in updates.values()) + sum(map(self.executor.extra_samples, tasks)),
            sum(update.forward_samples for update in updates.values()) + sum(map(self.executor.forward_samples, tasks)),
        )


def _beyond(progress: Progress, done: int) -> Progress:
    """Progress of a group of the cohort, after others."""
    return lambda more: progress(done + more)
