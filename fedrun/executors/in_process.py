"""Clients one after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrun.executors.base import Executor, Gathering
from fedrun.randomness import address, generator
from fedrun.strategies.base import MODEL, CohortUpdate, Vectors
from fedrun.training import train


class InProcess(Executor):
    """Trains a cohort's clients in turn on one network."""

    def run(
        self, cohort: torch.Tensor, round: int, received: Vectors, progress: Callable[[int], None]
    ) -> CohortUpdate:
        work = self.workplace
        network, half, trainable = work.network, work.client, work.network.layout.trainable
        rate = work.local.rate(round)
        gathering = Gathering(work, cohort)
        for position, client in enumerate(cohort.tolist()):
            memory = work.memory.get(client)
            constants = half.constants(received, memory, trainable)
            network.load(half.start(received, memory))
            torch.manual_seed(address(work.seed, "forward", round, client))  # for dropout
            order = generator(work.seed, "batches", round, client)
            trained = train(
                network, half, work.local, work.samples, work.clients[client], rate, constants, order
            )
            steps = torch.tensor(float(trained.steps), device=network.vector.device)
            uploads, memory = half.finish(network.vector, received, memory, constants, steps, rate)
            gathering.add(position, {MODEL: network.vector, **uploads}, memory, trained)
            progress(position + 1)
        return gathering.result()
