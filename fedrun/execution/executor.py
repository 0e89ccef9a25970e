"""What an executor is: it carries out local training. Strategies do not know which one runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import torch

from fedrun.data.federation import ClientIndices
from fedrun.execution.aggregator import Aggregator
from fedrun.execution.context import ClientResult, CohortJob, ExecutionContext, Progress
from fedrun.models.inference import evaluate, per_holder
from fedrun.strategies.client import ClientInfo
from fedrun.strategies.client_state import IDLE, NO_STATE, ClientStates
from fedrun.strategies.clustering.context import FORWARD_BATCH
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.server import CohortUpdate, ServerState, ServerStrategy
from fedrun.strategies.sgd import SGD
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.randomness import address, generator
from fedrun.training.batches import processed, steps_of
from fedrun.training.train import full_gradient


class Executor(ABC):
    """Carries out local training."""

    def __init__(self, context: ExecutionContext) -> None:
        self.context = context
        shares, local, device = context.clients, context.local, context.network.vector.device
        self._batches_per_step = len(context.client.passes)
        sizes = shares.sizes.double()[:, None]
        self.usual_steps = steps_of(shares.sizes, local, self._batches_per_step)
        self._samples = sizes.float().to(device)  # [N, 1], and so is the next
        self._shares = (sizes / sizes.mean()).float().to(device)
        self._mean_steps = int(steps_of(sizes.mean().ceil().long(), local, self._batches_per_step))
        self._label_counts: torch.Tensor | None = None
        if context.client.counts_labels:
            targets, classes = context.samples.targets.cpu(), context.network.layout.classes
            self._label_counts = shares.class_counts(targets, classes).float().to(device)
        self._tuner: Executor | None = None
        if tuning := context.client.tunes_first:
            brief, seed = replace(local, epochs=None, steps=tuning), address(context.seed, "tuning")
            alone = ExecutionContext(context.network, context.samples, shares, client=SGD(), local=brief, seed=seed)
            self._tuner = type(self)(alone)

    @classmethod
    def refusal(cls, context: ExecutionContext) -> str | None:
        """Why this executor cannot work here, in words; None where it can."""
        return None

    @abstractmethod
    def visits(self, task: CohortJob, progress: Progress = lambda done: None) -> Iterator[ClientResult]:
        """Train the cohort's clients and yield each once, in any order.

        ``progress`` is called with the number of clients done so far.
        """

    def steps(self, task: CohortJob) -> torch.Tensor:
        """The local steps of each of the task's cohort, int64 ``[C]``."""
        return self.usual_steps[task.cohort] if task.steps is None else task.steps

    def local(self, steps: int, client: int) -> LocalTraining:
        """How a client trains that is to make this many steps."""
        work = self.context
        if self._batches_per_step == 1 and steps == self.usual_steps[client]:
            return work.local
        return replace(work.local, epochs=None, steps=steps * self._batches_per_step)

    def infos(self, task: CohortJob) -> ClientInfo:
        """What the cohort's clients know of themselves, stacked: ``[C, ...]`` each, see :class:`ClientInfo`."""
        work, clients, device = self.context, task.cohort, self.context.network.vector.device
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

    def _initial_losses(self, task: CohortJob) -> torch.Tensor:
        """F_k at the broadcast model as each of the cohort reports it, float64 ``[C, 1]``."""
        work = self.context
        if self._tuner is not None:
            losses = torch.empty(len(task.cohort), dtype=torch.float64)
            for visit in self._tuner.visits(CohortJob(task.cohort, task.round, task.received, NO_STATE)):
                found = work.results(visit.model, int(task.cohort[visit.position]))
                losses[visit.position] = found.losses.double().mean()
        else:
            work.network.load(task.received[MODEL])
            parts = [work.clients[client] for client in task.cohort.tolist()]
            shares = ClientIndices(torch.cat(parts), torch.tensor([0, *map(len, parts)]).cumsum(0))
            losses, _ = per_holder(evaluate(work.network, work.samples, shares.samples, FORWARD_BATCH), shares)
        if work.attack is not None and task.uploads:
            for position, client in enumerate(task.cohort.tolist()):
                if client in work.attackers:
                    losses[position] = work.attack.reported(losses[position])
        return losses[:, None].to(work.network.vector.device)

    def _initial_gradients(self, task: CohortJob) -> torch.Tensor:
        """The gradient of F_k at the broadcast model for each of the cohort, float32 ``[C, T]``."""
        work = self.context
        work.network.load(task.received[MODEL])
        clients = task.cohort.tolist()
        return torch.stack(
            [full_gradient(work.network, work.samples, work.clients[client], FORWARD_BATCH) for client in clients]
        )

    def _beside(self, samples: int) -> tuple[int, int]:
        """How many samples a client with this many processes before it trains: forward and backward, forward only."""
        half, local = self.context.client, self.context.local
        tuned = processed(samples, replace(local, epochs=None, steps=half.tunes_first)) if half.tunes_first else 0
        return tuned + samples * half.measures_initial_gradient, samples * half.measures_initial_loss

    @cached_property
    def usual_samples(self) -> torch.Tensor:
        """How many samples every client processes in a round of its usual steps: forward and backward, forward only.

        int64 ``[N, 2]``.
        """
        half, sizes = self.context.client, self.context.clients.sizes
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
        """What the client half sends and remembers after local training (see :meth:`ClientStrategy.finish`).

        Raises:
            ValueError: it is not what the half says it sends and remembers; what is missing in a memory would be zero.
        """
        half = self.context.client
        uploads, kept = half.finish(model, received, memory, constants, client)
        remembers = half.remembers | half.remembers_models | half.remembers_heads
        for does, found, declared in (("sends", uploads, half.sends), ("remembers", kept, remembers)):
            if found.keys() != declared:
                raise ValueError(
                    f"{type(half).__name__} {does} {sorted(declared)}, but its finish returns {sorted(found)} for that"
                )
        return uploads, kept

    def tampered(self, model: torch.Tensor, task: CohortJob, client: int) -> torch.Tensor:
        """A client's trained model ``[P]``, or what an attacker makes of it."""
        work = self.context
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
        self, server: ServerStrategy, state: ServerState, task: CohortJob, progress: Progress
    ) -> tuple[CohortUpdate, ClientStates]:
        """Train the cohort.

        Returns:
            What the server learns of the round, and what clients remember after it.
        """
        gathering = Aggregator(self.context, server, state, task)
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

    def with_costs(self, update: CohortUpdate, task: CohortJob) -> CohortUpdate:
        """A cohort's update, with what it processes beside its local training."""
        beside = [self._beside(size) for size in self.context.clients.sizes[task.cohort].tolist()]
        return replace(
            update,
            client_samples=update.client_samples + sum(extra for extra, _ in beside),
            forward_samples=update.forward_samples + sum(forward for _, forward in beside),
        )

    def idle(self, task: CohortJob) -> ClientStates:
        """Train clients that are not selected; the memory in which each has its displacement (FedUmf).

        What else they remember does not change. A displacement that is not finite is forgotten.
        """
        trainable = self.context.network.layout.trainable
        changes: dict[int, Vectors] = {}
        for visit in self.visits(replace(task, uploads=False)):
            moved = visit.model[:trainable] - visit.start[:trainable]
            if moved.sum().isfinite():
                client = int(task.cohort[visit.position])
                changes[client] = {**task.memory.held.get(client, {}), **task.memory.keep({IDLE: moved})}
            del visit, moved
        return task.memory.updated(changes)
