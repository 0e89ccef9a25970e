"""A cohort's clients shared out over ranks. Each rank trains its share; together they form the models' updates.

After a round's training the ranks exchange small things as objects (who was accepted, reports, counts, the weight of
each rank's means), then, for every model that was trained, one sum over all ranks of everything long (weighted means,
and the rows the server half asks for). What clients remember does not travel. Every rank then holds the same updates
and makes the same server steps.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from fedrun.execution.context import CohortJob
from fedrun.execution.executor import Executor
from fedrun.execution.ranks import Ranks
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import CohortUpdate
from fedrun.strategies.vectors import Vectors

T = TypeVar("T")


def balanced(loads: Sequence[float], ranks: int) -> torch.Tensor:
    """To which rank each piece of work goes, int64 ``[n]``: the longest first, always to the rank with least to do.

    Ties go to the lower number, so every rank comes to the same answer. The busiest rank has at most 4/3 of what the
    best possible sharing would give it (Graham, 1969).
    """
    busy = [(0.0, rank) for rank in range(ranks)]
    shared = [0] * len(loads)
    for piece in sorted(range(len(loads)), key=lambda piece: (-loads[piece], piece)):
        load, rank = heapq.heappop(busy)
        shared[piece] = rank
        heapq.heappush(busy, (load + loads[piece], rank))
    return torch.tensor(shared, dtype=torch.int64)


@dataclass(frozen=True)
class PartialUpdate:
    """What one rank tells the others of its share of a model's update, apart from what is long.

    Attributes:
        update: the share's own, without means and rows.
        shapes: of its means, by name.
        width: r, the number of entries in a row; 0 without rows.
    """

    update: CohortUpdate
    shapes: dict[str, torch.Size]
    width: int

    @classmethod
    def of(cls, update: CohortUpdate) -> PartialUpdate:
        """What is told of an update."""
        shapes = {name: mean.shape for name, mean in update.mean.items()}
        return cls(replace(update, mean={}, rows=None), shapes, 0 if update.rows is None else update.rows.shape[1])


class DistributedCohort:
    """The executors of all ranks, as one of the ranks sees them: who does what, and what all of it comes to.

    All ranks must call the same methods in the same order. In a run of one process there is nothing to share out, and
    everything passes through as it is.

    Clients that remember nothing go, round by round, wherever the work is balanced, whichever models they train. A
    client that remembers something has a home, the rank where its memory lies and where it is always trained; homes
    balance the work of all clients together, so that a single cohort's may be spread less evenly.

    Args:
        executor: trains this rank's share.
        ranks: who else there is.
        remembers: whether clients remember something from round to round.

    Attributes:
        homes: every client's rank, int64 ``[N]``; None where each of the ranks (there may be only one) can train any.
    """

    def __init__(self, executor: Executor, ranks: Ranks, remembers: bool) -> None:
        self._executor = executor
        self._ranks = ranks
        self.client_to_rank: torch.Tensor | None = None
        if remembers and ranks.count > 1:
            everyone = torch.arange(len(executor.usual_steps))
            self.client_to_rank = balanced(self._loads(everyone, executor.usual_steps), ranks.count)

    def _loads(self, clients: torch.Tensor, steps: torch.Tensor) -> list[float]:
        """How many samples clients process that make these numbers of steps, up to a last batch's being smaller."""
        sizes, batch = self._executor.context.clients.sizes[clients], self._executor.context.local.batch_size
        batches = torch.ones_like(sizes) if batch is None else -(-sizes // batch)
        loads: list[float] = (steps * sizes / batches).tolist()
        return loads

    def _is_mine(self, clients: torch.Tensor, loads: Sequence[float]) -> torch.Tensor:
        """Which of these clients, with so much to do each, are this rank's, bool ``[n]``."""
        ranks = balanced(loads, self._ranks.count) if self.client_to_rank is None else self.client_to_rank[clients]
        return ranks == self._ranks.number

    def shares(self, tasks: Sequence[CohortJob]) -> list[CohortJob]:
        """What is this rank's of each task of a round, possibly nobody; no client may be in two of them."""
        if self._ranks.count == 1:
            return list(tasks)
        clients = torch.cat([task.cohort for task in tasks])
        loads = [load for task in tasks for load in self._loads(task.cohort, self._executor.steps(task))]
        mine = torch.split(self._is_mine(clients, loads), [len(task.cohort) for task in tasks])
        return [task.part(own) for task, own in zip(tasks, mine, strict=True)]

    def asked(self, clients: torch.Tensor, question: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """What each of these clients (int64 ``[n]``) answers, stacked, wherever it is asked.

        Args:
            clients: n ≥ 1.
            question: from a client's number to a small tensor on the CPU, of the same shape for all; it may look into
                what the client remembers. Answers are taken to cost as much as the client has training samples.
        """
        mine = clients
        if self._ranks.count > 1:
            mine = clients[self._is_mine(clients, self._executor.context.clients.sizes[clients].tolist())]
        known = self.brought_together({client: question(client) for client in mine.tolist()})
        return torch.stack([known[client] for client in clients.tolist()])

    def brought_together(self, known: Mapping[int, T]) -> dict[int, T]:
        """What each rank knows of its clients, for all."""
        return {client: value for part in self._ranks.all_gather(known) for client, value in part.items()}

    def agreed(self, value: T) -> T:
        """The leader's version of what all ranks have computed, but where rounding may have made a difference."""
        return self._ranks.broadcast(value)

    def idle(self, task: CohortJob) -> ClientStates:
        """Train this rank's clients among those that are not selected; see :meth:`Executor.idle`."""
        (share,) = self.shares([task])
        return self._executor.idle(share) if len(share.cohort) else task.client_states

    def combined(
        self, updates: Sequence[CohortUpdate], members: Sequence[torch.Tensor], received: Sequence[Vectors]
    ) -> list[CohortUpdate]:
        """The models' updates from all ranks' shares of them.

        Args:
            updates: what this rank's clients send back to each model.
            members: the clients that train each, on whatever rank, in the order of selection, int64 ``[C]``.
            received: what each has been broadcast as.

        Raises:
            RankLostError: a rank has died.
        """
        if self._ranks.count == 1:
            return list(updates)
        told = self._ranks.all_gather([PartialUpdate.of(update) for update in updates])
        parts = [[of_rank[model] for of_rank in told] for model in range(len(updates))]
        return list(map(self._joined, updates, parts, members, received))

    def _joined(
        self, own: CohortUpdate, parts: Sequence[PartialUpdate], members: torch.Tensor, received: Vectors
    ) -> CohortUpdate:
        """One model's update from all ranks' shares."""
        updates = [part.update for part in parts]
        places = {client: position for position, client in enumerate(members.tolist())}
        clients = torch.cat([update.clients for update in updates])
        order = torch.tensor([places[client] for client in clients.tolist()], dtype=torch.int64).argsort()
        total = math.fsum(update.total_weight for update in updates)
        accepted = sum(update.accepted_samples for update in updates)
        names = next((update.reports for update in updates if len(update.clients)), {})
        mean, rows = self._summed(own, parts, received, total, order)

        def joined(field: list[torch.Tensor]) -> torch.Tensor:
            return torch.cat(field)[order]

        return CohortUpdate(
            clients=clients[order],
            samples=joined([update.samples for update in updates]),
            reports={
                name: joined([update.reports[name] for update in updates if len(update.clients)]) for name in names
            },
            steps=joined([update.steps for update in updates]),
            mean=mean,
            total_weight=total,
            rows=rows,
            excluded=tuple(
                sorted((client for update in updates for client in update.excluded), key=places.__getitem__)
            ),
            loss=_average([(update.loss, update.accepted_samples) for update in updates], accepted),
            accuracy=_average([(update.accuracy, update.accepted_samples) for update in updates], accepted),
            client_samples=sum(update.client_samples for update in updates),
            forward_samples=sum(update.forward_samples for update in updates),
            accepted_samples=accepted,
        )

    def _summed(
        self, own: CohortUpdate, parts: Sequence[PartialUpdate], received: Vectors, total: float, order: torch.Tensor
    ) -> tuple[Vectors, torch.Tensor | None]:
        """The weighted means over all ranks and all rows, from one sum over the ranks.

        A mean is summed up as its difference from what the clients have received under that name: so an entry that no
        client has moved stays exactly where it was, as it does within one process. A row is added to zeros.
        """
        shapes = next((part.shapes for part in parts if part.shapes), {})
        width = max(part.width for part in parts)
        lengths = [shape.numel() for shape in shapes.values()]
        counts = [len(part.update.clients) for part in parts]
        vector = torch.zeros(sum(lengths) + width * sum(counts), device=self._executor.context.network.vector.device)
        *sums, stacked = torch.split(vector, [*lengths, width * sum(counts)])
        if total:
            weight = own.total_weight / total
        else:  # as in one process: where nobody has a weight, the first client stands for all
            first = int(order[0]) if len(order) else 0
            weight = float(sum(counts[: self._ranks.number]) <= first < sum(counts[: self._ranks.number + 1]))
        anchors = {name: received[name] for name, shape in shapes.items() if _same_shape(received.get(name), shape)}
        for name, moved in zip(shapes, sums, strict=True):
            if name in own.mean:
                moved.copy_(own.mean[name].flatten())
                if name in anchors:
                    moved.sub_(anchors[name].flatten())
                moved.mul_(weight)
        rows = stacked.view(-1, width) if width else None
        if rows is not None and own.rows is not None:
            first = sum(counts[: self._ranks.number])
            rows[first : first + len(own.rows)] = own.rows
        self._ranks.all_reduce(vector)
        for name, moved in zip(shapes, sums, strict=True):
            if name in anchors:
                moved.add_(anchors[name].flatten())
        # copies, since the next state may be built in their place and outlive the others
        mean = {name: moved.view(shape).clone() for (name, shape), moved in zip(shapes.items(), sums, strict=True)}
        return mean, None if rows is None else rows[order.to(rows.device)]


def _same_shape(vector: torch.Tensor | None, shape: torch.Size) -> bool:
    return vector is not None and vector.shape == shape


def _average(parts: Sequence[tuple[float, int]], total: int) -> float:
    """The mean of means over so many samples each."""
    return math.fsum(mean * count for mean, count in parts if count) / total if total else float("nan")


def nothing() -> CohortUpdate:
    """The update of no clients."""
    empty, nan = torch.zeros(0, dtype=torch.int64), float("nan")
    return CohortUpdate(
        clients=empty,
        samples=empty,
        steps=empty,
        mean={},
        total_weight=0.0,
        rows=None,
        excluded=(),
        loss=nan,
        accuracy=nan,
        client_samples=0,
    )
