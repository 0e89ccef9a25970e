"""Clients one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from fedrun.execution.context import ClientResult, CohortJob, Progress
from fedrun.execution.executor import Executor
from fedrun.strategies.client import ClientInfo
from fedrun.strategies.client_state import IDLE, MOMENTUM
from fedrun.system.randomness import address, generator
from fedrun.training.train import train


class InProcess(Executor):
    """Trains a cohort's clients in turn on one network."""

    def visits(self, task: CohortJob, progress: Progress = lambda done: None) -> Iterator[ClientResult]:
        infos, steps = self.infos(task), self.steps(task).tolist()
        for position in range(len(task.cohort)):
            yield self._visit(task, position, infos.of(position), steps[position])
            progress(position + 1)

    def _visit(self, task: CohortJob, position: int, info: ClientInfo, steps: int) -> ClientResult:
        """Train one client; a method of its own, lest its vectors live on while the next client trains."""
        work, client = self.context, int(task.cohort[position])
        network, half, received = work.network, work.client, task.received
        trainable, device = network.layout.trainable, network.vector.device
        own = task.memory.of(client, device)
        constants = half.constants(received, own, info)
        start = half.start(received, own, info)
        if task.fusion:
            start = start.clone()
            start[:trainable].add_(own[IDLE], alpha=task.fusion)
        network.load(start)
        momentum = own[MOMENTUM].clone() if half.keeps_momentum and work.local.momentum else None
        seed_forward(address(work.seed, "forward", task.round, client), device)
        order = generator(work.seed, "batches", task.round, client)
        local, rate = self.local(steps, client), work.local.rate(task.round)
        augmentation = work.samples.augmentation
        augment = None if augmentation is None else augmentation.drawn(work.seed, task.round, client)
        trained = train(
            network, half, local, work.samples, work.clients[client], rate, constants, order, momentum, augment
        )
        model = self.tampered(network.vector, task, client)
        uploads, kept = self.finished(model, received, own, constants, replace(info, start=start))
        if momentum is not None:
            kept = {**kept, MOMENTUM: momentum}
        return ClientResult(position, start, network.vector, uploads, kept, trained)


def seed_forward(seed: int, device: torch.device) -> None:
    """Seed what dropout draws from on a device: what :func:`torch.manual_seed` does for devices of all kinds at once,
    which takes it as long as some steps of a small model.
    """
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    torch.default_generator.manual_seed(seed)
