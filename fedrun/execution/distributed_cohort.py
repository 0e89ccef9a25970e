"""A cohort that is trained on several ranks. Each rank trains a part of it; together they form the models' updates.

After a round's training the ranks exchange small values as objects (accepted clients, reports, counts, the weight of
each rank's means). Then they compute, for every model that was trained, one sum over all ranks of the long vectors
(weighted means, and the rows that the server strategy needs). Client states stay on their ranks. Every rank then holds
the same updates and makes the same server steps.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from fedrun.execution.context import CohortJob
from fedrun.execution.executor import Executor
from fedrun.execution.ranks import Ranks
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import CohortUpdate
from fedrun.strategies.vectors import Vectors, on_device
from fedrun.training.batches import batches_per_epoch

T = TypeVar("T")


def balanced(loads: Sequence[float], ranks: int) -> torch.Tensor:
    """The rank of each client, int64 ``[n]``: the largest load first, always to the rank with the least load.

    Ties go to the lower number, so all ranks compute the same assignment. The load of the busiest rank is at most 4/3
    of the least possible one (Graham, 1969).
    """
    busy = [(0.0, rank) for rank in range(ranks)]
    assigned = [0] * len(loads)
    for client in sorted(range(len(loads)), key=lambda client: (-loads[client], client)):
        load, rank = heapq.heappop(busy)
        assigned[client] = rank
        heapq.heappush(busy, (load + loads[client], rank))
    return torch.tensor(assigned, dtype=torch.int64)


class DistributedCohort:
    """The cohorts of a run, trained on all ranks, as seen by one rank.

    All ranks must call the same methods in the same order. In a run of one process everything passes through unchanged.

    Clients without a state are assigned to ranks in each round, such that the load is balanced over all models. A
    client with a state is always trained on the rank that holds its state. That assignment balances the load of all
    clients, so the load of a single cohort may be less balanced.

    Args:
        executor: trains this rank's clients.
        ranks: ranks of the run.
        stateful: whether clients have a state between rounds.

    Attributes:
        ranks: ranks of the run.
        client_to_rank: the rank of each client, int64 ``[N]``; None: any rank can train any client.
    """

    def __init__(self, executor: Executor, ranks: Ranks, stateful: bool) -> None:
        self._executor = executor
        self.ranks = ranks
        self.client_to_rank: torch.Tensor | None = None
        if stateful and ranks.count > 1:
            everyone = torch.arange(len(executor.usual_steps))
            self.client_to_rank = balanced(self._loads(everyone, executor.usual_steps), ranks.count)

    def _loads(self, clients: torch.Tensor, steps: torch.Tensor) -> list[float]:
        """The samples that clients process in these numbers of steps, if all batches of a client have the same size."""
        sizes, batch = self._executor.context.clients.sizes[clients], self._executor.context.local.batch_size
        loads: list[float] = (steps * sizes / batches_per_epoch(sizes, batch)).tolist()
        return loads

    def _is_local(self, clients: torch.Tensor, loads: Sequence[float]) -> torch.Tensor:
        """Whether this rank trains each client, bool ``[n]``, given their loads."""
        ranks = balanced(loads, self.ranks.count) if self.client_to_rank is None else self.client_to_rank[clients]
        return ranks == self.ranks.number

    def local_jobs(self, jobs: Sequence[CohortJob]) -> list[CohortJob]:
        """Return this rank's part (possibly no client) of each job of a round. No client may be in two jobs."""
        if self.ranks.count == 1:
            return list(jobs)
        clients = torch.cat([job.cohort for job in jobs])
        loads = [load for job in jobs for load in self._loads(job.cohort, self._executor.steps(job))]
        local = torch.split(self._is_local(clients, loads), [len(job.cohort) for job in jobs])
        return [job.part(mask) for job, mask in zip(jobs, local, strict=True)]

    def local_clients(self, clients: torch.Tensor) -> torch.Tensor:
        """Those of some clients (int64 ``[n]``) that this rank measures: those whose states it holds or, if clients
        have no state, a part of them with about as many training samples as the parts of the other ranks.
        """
        if self.ranks.count == 1:
            return clients
        return clients[self._is_local(clients, self._executor.context.clients.sizes[clients].tolist())]

    def map_clients(self, clients: torch.Tensor, measure: Callable[[int], T]) -> list[T]:
        """Measure each of some clients (int64 ``[n]``) on one rank, that of its state; all ranks get the results, in
        the order of the clients.
        """
        by_client = self.all_gather({client: measure(client) for client in self.local_clients(clients).tolist()})
        return [by_client[client] for client in clients.tolist()]

    def query(self, clients: torch.Tensor, measure: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """The results of :meth:`map_clients`, stacked: small CPU tensors, of the same shape for all n ≥ 1 clients."""
        return torch.stack(self.map_clients(clients, measure))

    def all_gather(self, by_client: Mapping[int, T]) -> dict[int, T]:
        """The values of all ranks' clients, on all ranks."""
        return {client: value for part in self.ranks.all_gather(by_client) for client, value in part.items()}

    def idle(self, job: CohortJob) -> ClientStates:
        """Train this rank's part of the idle clients; see :meth:`Executor.idle`."""
        (local,) = self.local_jobs([job])
        return self._executor.idle(local) if len(local.cohort) else job.client_states

    def combine(
        self, updates: Sequence[CohortUpdate], members: Sequence[torch.Tensor], received: Sequence[Vectors]
    ) -> list[CohortUpdate]:
        """Combine the partial updates of all ranks into one update for each model.

        Args:
            updates: this rank's partial update of each model.
            members: the clients of all ranks that train each model, in the order of selection, int64 ``[C]``.
            received: the broadcast of each model.

        Raises:
            RankLostError: a rank has died.
        """
        if self.ranks.count == 1:
            return list(updates)
        by_rank = self.ranks.all_gather([_without_vectors(update) for update in updates])
        parts = [[updates_of_rank[model] for updates_of_rank in by_rank] for model in range(len(updates))]
        return list(map(self._combine_model, updates, parts, members, received))

    def _combine_model(
        self, local: CohortUpdate, updates: Sequence[CohortUpdate], members: torch.Tensor, received: Vectors
    ) -> CohortUpdate:
        """One model's update from this rank's partial update, and those of all ranks without vectors."""
        places = {client: position for position, client in enumerate(members.tolist())}
        clients = torch.cat([update.clients for update in updates])
        order = torch.tensor([places[client] for client in clients.tolist()], dtype=torch.int64).argsort()
        total = math.fsum(update.total_weight for update in updates)
        accepted = math.fsum(update.sample_weight for update in updates)
        trained = [update for update in updates if len(update.clients)]
        norms = [update.squared_norms for update in updates if update.squared_norms is not None]
        mean, rows = self._sum(local, updates, received, total, order)

        def concat(field: list[torch.Tensor]) -> torch.Tensor:
            return torch.cat(field)[order]

        def concat_named(field: list[Vectors]) -> Vectors:
            return {name: concat([vectors[name] for vectors in field]) for name in (field[0] if field else ())}

        return CohortUpdate(
            clients=clients[order],
            samples=concat([update.samples for update in updates]),
            reports=concat_named([update.reports for update in trained]),
            steps=concat([update.steps for update in updates]),
            mean=mean,
            weights=concat([update.weights for update in updates]),
            rows=rows,
            excluded=tuple(
                sorted((client for update in updates for client in update.excluded), key=places.__getitem__)
            ),
            loss=_average([(update.loss, update.sample_weight) for update in updates], accepted),
            score=_average([(update.score, update.sample_weight) for update in updates], accepted),
            processed=torch.cat([update.processed for update in updates]),
            sample_weight=accepted,
            losses=concat([update.losses for update in updates]),
            measures=concat_named([update.measures for update in trained]),
            squared_norms=concat(norms) if norms else None,
        )

    def _sum(
        self, local: CohortUpdate, updates: Sequence[CohortUpdate], received: Vectors, total: float, order: torch.Tensor
    ) -> tuple[Vectors, torch.Tensor | None]:
        """The weighted means over all ranks and all rows, from one sum over the ranks for each type of numbers.

        Each mean is summed as its difference from the broadcast vector of that name, so that an entry that no client
        changed keeps its exact value, as within one process. A row is added to zeros.
        """
        means = {name: mean for update in updates for name, mean in update.mean.items()}
        width = max(0 if update.rows is None else update.rows.shape[1] for update in updates)
        counts = [len(update.clients) for update in updates]
        # as in one process, clients are equal if none has a weight
        weight = local.total_weight / total if total else len(local.clients) / max(1, sum(counts))
        combined, rows = dict[str, torch.Tensor](), None
        for dtype in dict.fromkeys([torch.float32, *(mean.dtype for mean in means.values())]):
            named = {name: len(mean) for name, mean in means.items() if mean.dtype == dtype}
            sizes = [*named.values(), width * sum(counts) if dtype == torch.float32 else 0]
            vector = torch.empty(sum(sizes), dtype=dtype, device=self._executor.context.network.vector.device)
            *sums, stacked = torch.split(vector, sizes)
            sent = {name: vector for name, vector in received.items() if vector.shape == (named.get(name),)}
            for name, moved in zip(named, sums, strict=True):
                if name not in local.mean:
                    moved.zero_()
                elif name in sent:
                    torch.sub(local.mean[name], sent[name], out=moved).mul_(weight)
                else:
                    torch.mul(local.mean[name], weight, out=moved)
            stacked.zero_()
            if len(stacked):
                rows = stacked.view(-1, width)
                if local.rows is not None:
                    first = sum(counts[: self.ranks.number])
                    rows[first : first + len(local.rows)] = local.rows
            self.ranks.all_reduce(vector)
            # copies, because the next state may be built in their memory and live longer
            combined |= {
                name: sent[name] + moved if name in sent else moved.clone()
                for name, moved in zip(named, sums, strict=True)
            }
        return combined, None if rows is None else rows[order.to(rows.device)]


def _without_vectors(update: CohortUpdate) -> CohortUpdate:
    """An update whose means have lengths and whose rows have a shape, but no entries: it is small."""
    rows = None if update.rows is None else update.rows.to("meta")
    return replace(update, mean=on_device(update.mean, "meta"), rows=rows)


def _average(parts: Sequence[tuple[float, float]], total: float) -> float:
    """The mean of means over samples with these weights."""
    return math.fsum(mean * count for mean, count in parts if count) / total if total else float("nan")
