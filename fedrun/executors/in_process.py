"""Clients one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fedrun.executors.base import IDLE, MOMENTUM, Executor, Progress, Task, Visit
from fedrun.randomness import address, generator
from fedrun.training import train


class InProcess(Executor):
    """Trains a cohort's clients in turn on one network."""

    def visits(self, task: Task, progress: Progress = lambda done: None) -> Iterator[Visit]:
        work = self.workplace
        network, half, received = work.network, work.client, task.received
        rate, infos, steps = work.local.rate(task.round), self.infos(task), self.steps(task).tolist()
        trainable = network.layout.trainable
        for position, client in enumerate(task.cohort.tolist()):
            own = task.memory.of(client, network.vector.device)
            info = infos.of(position)
            constants = half.constants(received, own, info)
            start = half.start(received, own, info)
            if task.fusion:
                start = start.clone()
                start[:trainable].add_(own[IDLE], alpha=task.fusion)
            network.load(start)
            momentum = own[MOMENTUM].clone() if half.keeps_momentum and work.local.momentum else None
            seed_forward(address(work.seed, "forward", task.round, client), network.vector.device)
            order = generator(work.seed, "batches", task.round, client)
            local = self.local(steps[position], client)
            augmentation = work.samples.augmentation
            augment = None if augmentation is None else augmentation.drawn(work.seed, task.round, client)
            trained = train(
                network, half, local, work.samples, work.clients[client], rate, constants, order, momentum, augment
            )
            model = self.tampered(network.vector, task, client)
            uploads, kept = half.finish(model, received, own, constants, info)
            if momentum is not None:
                kept = {**kept, MOMENTUM: momentum}
            yield Visit(position, start, network.vector, uploads, kept, trained)
            progress(position + 1)


def seed_forward(seed: int, device: torch.device) -> None:
    """Seed what dropout draws from on a device: what :func:`torch.manual_seed` does for devices of all kinds at once,
    which takes it as long as some steps of a small model.
    """
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    torch.default_generator.manual_seed(seed)
