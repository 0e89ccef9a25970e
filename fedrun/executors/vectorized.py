"""A cohort's clients side by side: one batched forward and backward pass per step (``torch.func``).

Clients of unequal size are padded: batches with repeated samples of weight zero, clients with masked steps. To waste
little, a cohort is cut into groups of clients that make similar numbers of steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fedrun.datasets.augmentation import UNIFORMS, draws
from fedrun.executors.base import IDLE, MOMENTUM, Executor, Progress, Task, Visit, Workplace
from fedrun.randomness import generator
from fedrun.strategies.base import ClientInfo, Vectors
from fedrun.training import Trained, epochs, repair, sgd_step

GROUP = 64
"""Most clients trained side by side; more would cost memory and gain little."""

UNSUPPORTED = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.RNNBase, torch.nn.modules.dropout._DropoutNd)


class Vectorized(Executor):
    """Trains groups of clients as one batched computation, with the results of :class:`InProcess` up to rounding."""

    @classmethod
    def refusal(cls, workplace: Workplace) -> str | None:
        half = workplace.client
        if half.compares or half.recalls:
            return f"strategy.client={type(half).__name__}, which compares embeddings under several models"
        if half.trains_beside:
            return f"strategy.client={type(half).__name__}, which trains a second model beside the first"
        for module in workplace.network.network.modules():
            if isinstance(module, UNSUPPORTED):
                return f"a model with {type(module).__name__} layers"
        return None

    def visits(self, task: Task, progress: Progress = lambda done: None) -> Iterator[Visit]:
        steps, sizes = self.steps(task).tolist(), self.workplace.clients.sizes[task.cohort].tolist()
        alike = sorted(range(len(sizes)), key=lambda position: (steps[position], sizes[position]))
        infos = self.infos(task)
        for first in range(0, len(alike), GROUP):
            positions = alike[first : first + GROUP]
            yield from self._train(positions, task, infos.of(positions), [steps[position] for position in positions])
            progress(first + len(positions))

    def _train(self, positions: list[int], task: Task, info: ClientInfo, steps: list[int]) -> Iterator[Visit]:
        """Train one group of clients."""
        work = self.workplace
        half, received, trainable = work.client, task.received, work.network.layout.trainable
        clients = task.cohort[positions].tolist()
        memories = [task.memory.of(client, work.network.vector.device) for client in clients]
        own = {name: torch.stack([each[name] for each in memories]) for name in task.memory.names}
        constants = half.constants(received, own, info)
        start = half.start(received, own, info).expand(len(clients), -1).clone()
        if task.fusion:
            start[:, :trainable].add_(own[IDLE], alpha=task.fusion)
        model = start.clone()
        weights = model[:, :trainable]
        momentum = torch.zeros_like(weights) if work.local.momentum else None
        if momentum is not None and half.keeps_momentum:
            momentum = own[MOMENTUM].clone()
        objective = Objectives(work, constants, *self._batches(clients, task.round, steps))
        self._descend(weights, momentum, objective, constants, work.local.rate(task.round))
        sent = torch.stack([self.tampered(model[k], task, client) for k, client in enumerate(clients)])
        uploads, kept = half.finish(sent, received, own, constants, info)
        if momentum is not None and half.keeps_momentum:
            kept = {**kept, MOMENTUM: momentum}
        for k, position in enumerate(positions):
            yield Visit(
                position,
                start[k],
                model[k],
                {name: vectors[k] for name, vectors in uploads.items()},
                {name: vectors[k] for name, vectors in kept.items()},
                Trained(steps[k], int(objective.processed[k]), objective.losses[k], objective.correct[k]),
            )

    def _descend(
        self,
        weights: torch.Tensor,
        momentum: torch.Tensor | None,
        objective: Objectives,
        constants: Vectors,
        rate: float,
    ) -> None:
        """All steps of a group of clients, in place on parameters and momenta ``[C, T]``."""
        half, local = self.workplace.client, self.workplace.local
        decay, together = half.decay(constants), half.batches_per_step
        for first in range(0, objective.batches, together):

            def gradient(at: torch.Tensor, which: int, first: int = first) -> torch.Tensor:
                return objective.gradient(at, first + which)

            move = gradient(weights, 0) if together == 1 else half.direction(gradient, weights, constants)
            half.correct(move, weights, constants)
            active = objective.active(first)
            if active is None:
                sgd_step(weights, move, momentum, rate, local, decay)
                continue
            # some clients have finished: their models and momenta stay
            moved, carried = weights.clone(), None if momentum is None else momentum.clone()
            sgd_step(moved, move, carried, rate, local, decay)
            weights.copy_(torch.where(active, moved, weights))
            if momentum is not None and carried is not None:
                momentum.copy_(torch.where(active, carried, momentum))
        if local.repair_nonfinite:
            repair(weights)

    def _batches(
        self, clients: list[int], round: int, steps: list[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Every client's batches, in the order in which :class:`InProcess` visits them.

        Returns:
            Sample numbers int64 ``[C, S, B]``, padded with the client's first sample; the number of real samples in
            each batch, int64 ``[C, S]``, 0 after a client's last step; and what their augmentation has drawn, float32
            ``[C, S, B, 5]``, if there is one.
        """
        work = self.workplace
        augmented = work.samples.augmentation is not None
        plans: list[list[torch.Tensor]] = []
        drawn: list[list[torch.Tensor]] = []
        for client, count in zip(clients, steps, strict=True):
            own, local = work.clients[client], self.local(count, client)
            batch = len(own) if local.batch_size is None else local.batch_size
            order = generator(work.seed, "batches", round, client)
            visits = list(epochs(len(own), local, order, work.client.shuffles))
            plans.append([part for epoch in visits for part in torch.split(own[epoch], batch)])
            if augmented:
                draw = draws(work.seed, round, client)
                drawn.append([part for epoch in visits for part in torch.split(draw(len(epoch)), batch)])
        longest = max(len(plan) for plan in plans)
        width = max(len(part) for plan in plans for part in plan)
        first = torch.stack([work.clients[client][0] for client in clients])
        batches = first[:, None, None].repeat(1, longest, width)
        counts = torch.zeros(len(clients), longest, dtype=torch.int64)
        for k, plan in enumerate(plans):
            for s, part in enumerate(plan):
                batches[k, s, : len(part)] = part
                counts[k, s] = len(part)
        if not augmented:
            return batches, counts, None
        uniforms = torch.zeros(*batches.shape, UNIFORMS)
        for k, parts in enumerate(drawn):
            for s, part in enumerate(parts):
                uniforms[k, s, : len(part)] = part
        return batches, counts, uniforms


class Objectives:
    """What a group of clients minimises, side by side: gradients, and a record of what was processed.

    Args:
        workplace: with the network, the samples and the client half.
        constants: from :meth:`ClientHalf.constants`, ``[C, m]`` or ``[m]`` each.
        batches: sample numbers int64 ``[C, S, B]``.
        counts: how many of each batch's samples are real, int64 ``[C, S]``.
        uniforms: what the samples' augmentation has drawn, float32 ``[C, S, B, 5]``, or None.

    Attributes:
        batches: S.
        losses: Σ over the samples processed of their losses, float32 ``[C]``.
        correct: how many of them were predicted correctly, int64 ``[C]``.
        processed: how many there were, int64 ``[C]``.
    """

    def __init__(
        self,
        workplace: Workplace,
        constants: Vectors,
        batches: torch.Tensor,
        counts: torch.Tensor,
        uniforms: torch.Tensor | None,
    ) -> None:
        device = workplace.network.vector.device
        self._samples = workplace.samples
        self._constants = constants
        self._batches = batches
        self._uniforms = None if uniforms is None else uniforms.to(device)
        self._everyone = (counts > 0).all(0).tolist()
        self._counts = counts.to(device)
        self._slots = torch.arange(batches.shape[2], device=device)
        self.batches = batches.shape[1]
        self.losses = torch.zeros(len(batches), device=device)
        self.correct, self.processed = (torch.zeros(len(batches), dtype=torch.int64, device=device) for _ in range(2))
        module, half, views = workplace.network.network.train(), workplace.client, workplace.network.layout.views

        def client_loss(
            parameters: torch.Tensor, fixed: Vectors, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            logits = torch.func.functional_call(module, views(parameters), (x,))
            return (half.loss(logits, y, fixed) * weight).sum(), logits

        own = {name: 0 if vector.ndim > 1 else None for name, vector in constants.items()}
        self._each = torch.vmap(torch.func.grad_and_value(client_loss, has_aux=True), in_dims=(0, own, 0, 0, 0))

    def active(self, index: int) -> torch.Tensor | None:
        """Which clients have a batch of this number, bool ``[C, 1]``; None where all have."""
        return None if self._everyone[index] else self._counts[:, index, None] > 0

    def gradient(self, at: torch.Tensor, index: int) -> torch.Tensor:
        """Every client's gradient on its batch of this number, at parameters ``[C, T]``: a fresh ``[C, T]``."""
        inputs, targets = self._samples.gather(self._batches[:, index])
        if self._samples.augmentation is not None and self._uniforms is not None:
            flat = self._samples.augmentation(inputs.flatten(0, 1), self._uniforms[:, index].flatten(0, 1))
            inputs = flat.view(inputs.shape)
        count = self._counts[:, index, None]
        real = self._slots < count  # [C, B]
        weight = real / count.clamp_min(1)
        found: torch.Tensor
        found, (loss, logits) = self._each(at, self._constants, self._samples.encoding(inputs), targets, weight)
        self.losses += loss * count[:, 0]
        self.correct += ((logits.argmax(-1) == targets) & real).sum(1)
        self.processed += count[:, 0]
        return found
