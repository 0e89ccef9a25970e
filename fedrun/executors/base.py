"""What an executor is: it carries out local training. Strategies do not know which one runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from fedrun.attacks.base import Attack
from fedrun.client_memory import ClientMemory
from fedrun.evaluation import SampleResults, evaluate, per_holder
from fedrun.federation import Shares
from fedrun.parameters import FlatNetwork
from fedrun.randomness import address, generator
from fedrun.strategies.base import (
    MODEL,
    ClientHalf,
    ClientInfo,
    CohortUpdate,
    Senders,
    ServerHalf,
    ServerState,
    Vectors,
)
from fedrun.strategies.sgd import SGD
from fedrun.training import LocalTraining, Samples, Trained, full_gradient, processed, steps_of


@dataclass(frozen=True)
class Workplace:
    """Everything an executor needs that does not change from round to round.

    Attributes:
        network: the network; its vector is scratch space.
        samples: the dataset on its device.
        clients: who holds which training samples.
        client: how local training differs from plain SGD.
        local: how clients train.
        seed: of every random choice.
        attack: what the attackers among the clients do.
        attackers: their numbers.
        thresholds: every client's ρ_k, float64 ``[N]``, where the client half asks for it.
        keeps_last: whether every client remembers the model that it has last sent.
    """

    network: FlatNetwork
    samples: Samples
    clients: Shares
    client: ClientHalf
    local: LocalTraining
    seed: int
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    thresholds: torch.Tensor | None = None
    keeps_last: bool = False

    def results(self, model: torch.Tensor, client: int) -> SampleResults:
        """The results of a model ``[P]`` on a client's training samples."""
        self.network.load(model)
        return evaluate(self.network, self.samples, self.clients[client], FORWARD_BATCH)


@dataclass(frozen=True)
class Visit:
    """One client's local training, done.

    Attributes:
        position: index into the cohort.
        start: ``[P]``, the model at which training started.
        model: ``[P]``, the model after training, valid until the next visit.
        uploads: what the client half sends.
        memory: what the client will remember.
        trained: counts and sums of the training.
    """

    position: int
    start: torch.Tensor
    model: torch.Tensor
    uploads: Vectors
    memory: Vectors
    trained: Trained


@dataclass(frozen=True)
class Task:
    """What a cohort is asked to do.

    Attributes:
        cohort: client numbers, int64 ``[C]``.
        round: t, 0 in the first round.
        received: what the server broadcasts.
        memory: what clients remember.
        steps: local steps of each, int64 ``[C]``; None: as the local training says.
        fusion: by how much of its idle displacement a client's start is moved.
        uploads: whether what is trained will be sent up: attackers do their work then only.
        mixture: what each of several models counts for each of the cohort, float64 ``[C, M]``.
    """

    cohort: torch.Tensor
    round: int
    received: Vectors
    memory: ClientMemory
    steps: torch.Tensor | None = None
    fusion: float = 0.0
    uploads: bool = True
    mixture: torch.Tensor | None = None

    def part(self, which: torch.Tensor) -> Task:
        """The same for some of the cohort, by their positions or a mask ``[C]``."""

        def some(each: torch.Tensor | None) -> torch.Tensor | None:
            return None if each is None else each[which]

        return replace(self, cohort=self.cohort[which], steps=some(self.steps), mixture=some(self.mixture))


Progress = Callable[[int], None]

IDLE = "idle"
"""In a client's memory: the displacement of the parameters by training that was not sent up, ``[T]``."""

LAST = "last"
"""In a client's memory: the model that it has last sent, ``[P]``, where it is compared or averaged later."""

MOMENTUM = "momentum"
"""In a client's memory: the optimizer's momentum ``[T]``, for halves that keep it."""

FORWARD_BATCH = 1024
"""Samples per forward pass where clients only look at the broadcast model."""


class Executor(ABC):
    """Carries out local training."""

    def __init__(self, workplace: Workplace) -> None:
        self.workplace = workplace
        shares, local, device = workplace.clients, workplace.local, workplace.network.vector.device
        self._batches_per_step = len(workplace.client.passes)
        sizes = shares.sizes.double()[:, None]
        self.usual_steps = steps_of(shares.sizes, local, self._batches_per_step)
        self._samples = sizes.float().to(device)  # [N, 1], and so is the next
        self._shares = (sizes / sizes.mean()).float().to(device)
        self._mean_steps = int(steps_of(sizes.mean().ceil().long(), local, self._batches_per_step))
        self._label_counts: torch.Tensor | None = None
        if workplace.client.counts_labels:
            targets, classes = workplace.samples.targets.cpu(), workplace.network.layout.classes
            self._label_counts = shares.class_counts(targets, classes).float().to(device)
        self._tuner: Executor | None = None
        if tuning := workplace.client.tunes_first:
            brief, seed = replace(local, epochs=None, steps=tuning), address(workplace.seed, "tuning")
            alone = Workplace(workplace.network, workplace.samples, shares, client=SGD(), local=brief, seed=seed)
            self._tuner = type(self)(alone)

    @classmethod
    def refusal(cls, workplace: Workplace) -> str | None:
        """Why this executor cannot work here, in words; None where it can."""
        return None

    @abstractmethod
    def visits(self, task: Task, progress: Progress = lambda done: None) -> Iterator[Visit]:
        """Train the cohort's clients and yield each once, in any order.

        ``progress`` is called with the number of clients done so far.
        """

    def steps(self, task: Task) -> torch.Tensor:
        """The local steps of each of the task's cohort, int64 ``[C]``."""
        return self.usual_steps[task.cohort] if task.steps is None else task.steps

    def local(self, steps: int, client: int) -> LocalTraining:
        """How a client trains that is to make this many steps."""
        work = self.workplace
        if self._batches_per_step == 1 and steps == self.usual_steps[client]:
            return work.local
        return replace(work.local, epochs=None, steps=steps * self._batches_per_step)

    def infos(self, task: Task) -> ClientInfo:
        """What the cohort's clients know of themselves, stacked: ``[C, ...]`` each, see :class:`ClientInfo`."""
        work, clients, device = self.workplace, task.cohort, self.workplace.network.vector.device
        half = work.client
        return ClientInfo(
            trainable=work.network.layout.trainable,
            samples=self._samples[clients],
            share=self._shares[clients],
            steps=self.steps(task).float()[:, None].to(device),
            mean_steps=self._mean_steps,
            lr=work.local.rate(task.round),
            initial_lr=work.local.lr,
            momentum=work.local.momentum,
            label_counts=None if self._label_counts is None else self._label_counts[clients],
            initial_loss=self._initial_losses(task) if half.measures_initial_loss else None,
            initial_gradient=self._initial_gradients(task) if half.measures_initial_gradient else None,
            threshold=work.thresholds[clients, None] if half.knows_threshold and work.thresholds is not None else None,
            mixture=None if task.mixture is None else task.mixture.float().to(device),
            head=work.network.layout.head,
        )

    def _initial_losses(self, task: Task) -> torch.Tensor:
        """F_k at the broadcast model as each of the cohort reports it, float64 ``[C, 1]``."""
        work = self.workplace
        if self._tuner is not None:
            losses = torch.empty(len(task.cohort), dtype=torch.float64)
            for visit in self._tuner.visits(Task(task.cohort, task.round, task.received, NOTHING)):
                found = work.results(visit.model, int(task.cohort[visit.position]))
                losses[visit.position] = found.losses.double().mean()
        else:
            work.network.load(task.received[MODEL])
            parts = [work.clients[client] for client in task.cohort.tolist()]
            shares = Shares(torch.cat(parts), torch.tensor([0, *map(len, parts)]).cumsum(0))
            losses, _ = per_holder(evaluate(work.network, work.samples, shares.samples, FORWARD_BATCH), shares)
        if work.attack is not None and task.uploads:
            for position, client in enumerate(task.cohort.tolist()):
                if client in work.attackers:
                    losses[position] = work.attack.reported(losses[position])
        return losses[:, None].to(work.network.vector.device)

    def _initial_gradients(self, task: Task) -> torch.Tensor:
        """The gradient of F_k at the broadcast model for each of the cohort, float32 ``[C, T]``."""
        work = self.workplace
        work.network.load(task.received[MODEL])
        clients = task.cohort.tolist()
        return torch.stack(
            [full_gradient(work.network, work.samples, work.clients[client], FORWARD_BATCH) for client in clients]
        )

    def _beside(self, samples: int) -> tuple[int, int]:
        """How many samples a client with this many processes before it trains: forward and backward, forward only."""
        half, local = self.workplace.client, self.workplace.local
        tuned = processed(samples, replace(local, epochs=None, steps=half.tunes_first)) if half.tunes_first else 0
        return tuned + samples * half.measures_initial_gradient, samples * half.measures_initial_loss

    @cached_property
    def usual_samples(self) -> torch.Tensor:
        """How many samples every client processes in a round of its usual steps: forward and backward, forward only.

        int64 ``[N, 2]``.
        """
        half, sizes = self.workplace.client, self.workplace.clients.sizes
        found: dict[int, tuple[int, int]] = {}
        for client, size in enumerate(sizes.tolist()):
            if size not in found:
                trained = processed(size, self.local(int(self.usual_steps[client]), client), half.passes)
                compared = trained - min(size, trained) if half.recalls else trained  # not yet in the first epoch
                extra, forward = self._beside(size)
                found[size] = trained + extra, len(half.compares) * compared + forward
        return torch.tensor([found[size] for size in sizes.tolist()])

    def finished(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        """What the client half sends and remembers after local training (see :meth:`ClientHalf.finish`).

        Raises:
            ValueError: it is not what the half says it sends and remembers; what is missing in a memory would be zero.
        """
        half = self.workplace.client
        uploads, kept = half.finish(model, received, memory, constants, client)
        remembers = half.remembers | half.remembers_models | half.remembers_heads
        for does, found, declared in (("sends", uploads, half.sends), ("remembers", kept, remembers)):
            if found.keys() != declared:
                raise ValueError(
                    f"{type(half).__name__} {does} {sorted(declared)}, but its finish returns {sorted(found)} for that"
                )
        return uploads, kept

    def tampered(self, model: torch.Tensor, task: Task, client: int) -> torch.Tensor:
        """A client's trained model ``[P]``, or what an attacker makes of it."""
        work = self.workplace
        if work.attack is None or not task.uploads or client not in work.attackers:
            return model
        trainable = work.network.layout.trainable
        draw = generator(work.seed, "attack", task.round, client)
        changed, head = model.clone(), work.network.layout.head
        changed[:trainable] = work.attack.tampered(model[:trainable], task.received[MODEL][:trainable], draw)
        if work.client.keeps_head:
            changed[head] = model[head]  # it is not sent
        return changed

    def run(
        self, server: ServerHalf, state: ServerState, task: Task, progress: Progress
    ) -> tuple[CohortUpdate, ClientMemory]:
        """Train the cohort.

        Returns:
            What the server learns of the round, and what clients remember after it.
        """
        gathering = Gathering(self.workplace, server, state, task)
        for visit in self.visits(task, progress):
            gathering.add(visit)
            del visit  # its vectors need not live on while the next client trains
        update = self.with_costs(gathering.result(), task)
        # A displacement lasts for one round, also where the round did not accept what was made of it.
        spent = {
            client: {name: vector for name, vector in task.memory.held[client].items() if name != IDLE}
            for client in update.excluded
            if IDLE in task.memory.held.get(client, {})
        }
        return update, task.memory.updated({**spent, **gathering.memory})

    def with_costs(self, update: CohortUpdate, task: Task) -> CohortUpdate:
        """A cohort's update, with what it processes beside its local training."""
        beside = [self._beside(size) for size in self.workplace.clients.sizes[task.cohort].tolist()]
        return replace(
            update,
            client_samples=update.client_samples + sum(extra for extra, _ in beside),
            forward_samples=update.forward_samples + sum(forward for _, forward in beside),
        )

    def idle(self, task: Task) -> ClientMemory:
        """Train clients that are not selected; the memory in which each has its displacement (FedUmf).

        What else they remember does not change. A displacement that is not finite is forgotten.
        """
        trainable = self.workplace.network.layout.trainable
        changes: dict[int, Vectors] = {}
        for visit in self.visits(replace(task, uploads=False)):
            moved = visit.model[:trainable] - visit.start[:trainable]
            if moved.sum().isfinite():
                client = int(task.cohort[visit.position])
                changes[client] = {**task.memory.held.get(client, {}), **task.memory.keep({IDLE: moved})}
            del visit, moved
        return task.memory.updated(changes)


NOTHING = ClientMemory((), 0)
"""The memory of clients that remember nothing."""


class Gathering:
    """Folds the clients' uploads, one after the other, into a :class:`CohortUpdate`.

    Only running means and the rows the server half asks for are kept, never a model per client. A client whose upload
    or new memory is not finite is left out with both.

    Attributes:
        memory: what the accepted clients will remember.
    """

    def __init__(self, workplace: Workplace, server: ServerHalf, state: ServerState, task: Task) -> None:
        self._work = workplace
        self._server = server
        self._state = state
        self._keep = task.memory.keep
        self._cohort = task.cohort
        self._samples = workplace.clients.sizes[task.cohort]
        self._weights: list[float] | None = None  # of the whole cohort, where they do not depend on reports
        self._total = 0.0
        self._means: dict[str, torch.Tensor] = {}
        self._rows: torch.Tensor | None = None  # [C, r], by position
        self._reports: dict[int, dict[str, float]] = {}
        self._steps: dict[int, int] = {}
        self._processed = 0
        self._compared = 0
        self._seen = 0
        self._loss = 0.0
        self._correct = 0
        self.memory: dict[int, Vectors] = {}

    def add(self, visit: Visit, share: float = 1.0, counts: bool = True) -> None:
        """Fold in one client.

        Args:
            visit: its training.
            share: a factor of its weight.
            counts: whether its costs, losses and memory are recorded here; False where another gathering does it.
        """
        trained, position, uploads = visit.trained, visit.position, visit.uploads
        if counts:
            self._processed += trained.processed
            self._compared += trained.compared
        # A sum is finite exactly if every entry is, short of an overflow, which would be no less of a failure.
        if not all(bool(vector.sum().isfinite()) for vector in (*uploads.values(), *visit.memory.values())):
            return
        reports = {name: float(vector) for name, vector in uploads.items() if vector.numel() == 1}
        weight = share * self._weight(position, reports)
        self._total += weight
        for name, vector in uploads.items():
            if name in self._means:
                # mean + (weight / total) (vector − mean): an entry that no client moved stays exactly where it was;
                # Σ w x / Σ w is off by a rounding error, which a server's Adam would blow up to a step of its own.
                self._means[name].lerp_(vector, weight / self._total if self._total else 0.0)
            else:
                self._means[name] = vector.clone()
        rows = self._server.rows
        if rows != "none":
            model = uploads[MODEL]
            row = model[self._work.network.layout.head] if rows == "head" else model
            if self._rows is None:
                self._rows = row.new_empty(len(self._cohort), len(row))
            self._rows[position] = row
        self._reports[position] = reports
        self._steps[position] = trained.steps
        if not counts:
            return
        kept = {**visit.memory, LAST: uploads[MODEL]} if self._work.keeps_last else visit.memory
        self.memory[int(self._cohort[position])] = self._keep(kept)  # also of nothing: an idle displacement goes
        self._seen += trained.processed
        self._loss += float(trained.loss_sum)
        self._correct += int(trained.correct)

    def _weight(self, position: int, reports: dict[str, float]) -> float:
        if not reports:
            if self._weights is None:
                everyone = Senders(clients=self._cohort, samples=self._samples)
                self._weights = self._server.weights(self._state, everyone).tolist()
            return self._weights[position]
        one = slice(position, position + 1)
        stacked = {name: torch.tensor([value], dtype=torch.float64) for name, value in reports.items()}
        sender = Senders(clients=self._cohort[one], samples=self._samples[one], reports=stacked)
        return float(self._server.weights(self._state, sender))

    def result(self) -> CohortUpdate:
        """The cohort's update, over the clients that were accepted, in the order of selection."""
        order = sorted(self._steps)
        accepted = torch.tensor(order, dtype=torch.int64)
        left_out = sorted(set(range(len(self._cohort))) - set(order))
        names = self._reports[order[0]] if order else ()
        return CohortUpdate(
            clients=self._cohort[accepted],
            samples=self._samples[accepted],
            reports={
                name: torch.tensor([self._reports[position][name] for position in order], dtype=torch.float64)
                for name in names
            },
            steps=torch.tensor([self._steps[position] for position in order], dtype=torch.int64),
            mean=self._means,
            total_weight=self._total,
            rows=self._rows[accepted] if self._rows is not None and left_out else self._rows,
            excluded=tuple(int(self._cohort[position]) for position in left_out),
            loss=self._loss / self._seen if self._seen else float("nan"),
            accuracy=self._correct / self._seen if self._seen else float("nan"),
            client_samples=self._processed,
            forward_samples=self._compared,
            accepted_samples=self._seen,
        )
