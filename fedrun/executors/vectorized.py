"""A cohort's clients side by side: one batched forward and backward pass per step (``torch.func``).

Clients of unequal size are padded: batches with repeated samples of weight zero, clients with masked steps. To waste
little, a cohort is cut into groups of clients that make similar numbers of steps.
"""

from __future__ import annotations

import torch

from fedrun.client_memory import ClientMemory
from fedrun.errors import InputError
from fedrun.executors.base import Executor, Gathering, Progress, Workplace
from fedrun.randomness import generator
from fedrun.strategies.base import CohortUpdate, Vectors
from fedrun.training import Trained, epochs, repair, sgd_step, steps_of

GROUP = 64
"""Most clients trained side by side; more would cost memory and gain little."""

UNSUPPORTED = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.RNNBase, torch.nn.modules.dropout._DropoutNd)


class Vectorized(Executor):
    """Trains groups of clients as one batched computation, with the results of :class:`InProcess` up to rounding.

    Raises:
        InputError: the client half compares embeddings under several models, training images are augmented, or the
            model has batch normalisation, recurrent layers or dropout, which ``torch.func`` does not batch over clients
            with the same results.
    """

    def __init__(self, workplace: Workplace) -> None:
        super().__init__(workplace)
        if workplace.client.compares:
            raise InputError(
                f"hardware.executor=vectorized cannot train with strategy.client={type(workplace.client).__name__}, "
                "which compares embeddings under several models; allowed here: hardware.executor=in_process"
            )
        if workplace.samples.augmentation is not None:
            raise InputError(
                "hardware.executor=vectorized cannot augment training images; "
                "allowed here: hardware.executor=in_process or dataset.augmentation=null"
            )
        for module in workplace.network.network.modules():
            if isinstance(module, UNSUPPORTED):
                raise InputError(
                    f"hardware.executor=vectorized cannot train a model with {type(module).__name__} layers; "
                    "allowed here: hardware.executor=in_process"
                )

    def run(
        self, cohort: torch.Tensor, round: int, received: Vectors, memory: ClientMemory, progress: Progress
    ) -> tuple[CohortUpdate, ClientMemory]:
        work = self.workplace
        gathering = Gathering(work, cohort)
        clients = cohort.tolist()
        sizes = work.clients.sizes[cohort].tolist()
        steps = [steps_of(size, work.local) for size in sizes]
        alike = sorted(range(len(clients)), key=lambda position: (steps[position], sizes[position]))
        initial_losses = self.initial_losses(cohort, received, gathering)
        results: dict[int, tuple[Vectors, Vectors, Trained]] = {}
        for first in range(0, len(alike), GROUP):
            positions = alike[first : first + GROUP]
            losses = None if initial_losses is None else initial_losses[positions]
            trained = self._train(cohort[positions], round, received, memory, losses)
            results.update(zip(positions, trained, strict=True))
            progress(len(results))
        for position in range(len(clients)):  # in the cohort's order, whatever the grouping
            gathering.add(position, *results.pop(position))
        return gathering.result(memory)

    def _train(
        self,
        cohort: torch.Tensor,
        round: int,
        received: Vectors,
        memory: ClientMemory,
        initial_losses: torch.Tensor | None,
    ) -> list[tuple[Vectors, Vectors, Trained]]:
        """Train these clients side by side: the uploads, memory and counts of each."""
        work = self.workplace
        network, half, local = work.network, work.client, work.local
        trainable, device = network.layout.trainable, network.vector.device
        rate = local.rate(round)
        clients = cohort.tolist()
        info = self.info(cohort, round, initial_losses)
        memories = [memory.of(client, device) for client in clients]
        own = {name: torch.stack([each[name] for each in memories]) for name in memory.names}
        constants = half.constants(received, own, info)
        decay = half.decay(constants)
        model = half.start(received, own).expand(len(clients), -1).clone()
        weights = model[:, :trainable]
        momentum = torch.zeros_like(weights) if local.momentum else None
        batches, counts = self._batches(clients, round)  # [C, S, B], [C, S]
        everyone = (counts > 0).all(0).tolist()
        counts = counts.to(device)
        losses = torch.zeros(len(clients), device=device)
        correct = torch.zeros(len(clients), dtype=torch.int64, device=device)
        module = network.network.train()
        views = network.layout.views

        def client_loss(
            parameters: torch.Tensor, fixed: Vectors, x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            logits = torch.func.functional_call(module, views(parameters), (x,))
            return (half.loss(logits, y, fixed) * weight).sum(), logits

        own_constants = {name: 0 if vector.ndim > 1 else None for name, vector in constants.items()}
        step = torch.vmap(torch.func.grad_and_value(client_loss, has_aux=True), in_dims=(0, own_constants, 0, 0, 0))
        slots = torch.arange(batches.shape[2], device=device)
        for index in range(batches.shape[1]):
            inputs, targets = work.samples.gather(batches[:, index])
            count = counts[:, index, None]
            real = slots < count  # [C, B]
            weight = real / count.clamp_min(1)
            gradient, (loss, logits) = step(weights, constants, work.samples.encoding(inputs), targets, weight)
            half.correct(gradient, weights, constants)
            active = count > 0
            if everyone[index]:
                sgd_step(weights, gradient, momentum, rate, local, decay)
            else:  # some clients have finished: their models stay
                moved = weights.clone()
                sgd_step(moved, gradient, momentum, rate, local, decay)
                weights.copy_(torch.where(active, moved, weights))
            losses += loss * count[:, 0]
            correct += ((logits.argmax(-1) == targets) & real).sum(1)
        if local.repair_nonfinite:
            repair(weights)
        made = (counts > 0).sum(1)
        processed = counts.sum(1)
        uploads, kept = half.finish(model, received, own, constants, info)
        return [
            (
                {name: vectors[k] for name, vectors in uploads.items()},
                {name: vectors[k] for name, vectors in kept.items()},
                Trained(int(made[k]), int(processed[k]), losses[k], correct[k]),
            )
            for k in range(len(clients))
        ]

    def _batches(self, clients: list[int], round: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Every client's batches, in the order in which :class:`InProcess` visits them.

        Returns:
            Sample numbers int64 ``[C, S, B]``, padded with the client's first sample, and the number of real samples in
            each batch, int64 ``[C, S]``, 0 after a client's last step.
        """
        work = self.workplace
        plans: list[list[torch.Tensor]] = []
        for client in clients:
            own = work.clients[client]
            batch = len(own) if work.local.batch_size is None else work.local.batch_size
            order = generator(work.seed, "batches", round, client)
            plans.append(
                [part for epoch in epochs(len(own), work.local, order) for part in torch.split(own[epoch], batch)]
            )
        steps = max(len(plan) for plan in plans)
        width = max(len(part) for plan in plans for part in plan)
        first = torch.stack([work.clients[client][0] for client in clients])
        batches = first[:, None, None].repeat(1, steps, width)
        counts = torch.zeros(len(clients), steps, dtype=torch.int64)
        for k, plan in enumerate(plans):
            for s, part in enumerate(plan):
                batches[k, s, : len(part)] = part
                counts[k, s] = len(part)
        return batches, counts
