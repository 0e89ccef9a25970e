"""Clients one after the other, in this process."""

from __future__ import annotations

import torch

from fedrun.client_memory import ClientMemory
from fedrun.executors.base import Executor, Gathering, Progress
from fedrun.randomness import address, generator
from fedrun.strategies.base import MODEL, CohortUpdate, Vectors
from fedrun.training import train


class InProcess(Executor):
    """Trains a cohort's clients in turn on one network."""

    def run(
        self, cohort: torch.Tensor, round: int, received: Vectors, memory: ClientMemory, progress: Progress
    ) -> tuple[CohortUpdate, ClientMemory]:
        work = self.workplace
        network, half, trainable = work.network, work.client, work.network.layout.trainable
        rate = work.local.rate(round)
        gathering = Gathering(work, cohort)
        for position, client in enumerate(cohort.tolist()):
            own = memory.of(client, network.vector.device)
            constants = half.constants(received, own, trainable)
            network.load(half.start(received, own))
            torch.manual_seed(address(work.seed, "forward", round, client))  # for dropout
            order = generator(work.seed, "batches", round, client)
            trained = train(network, half, work.local, work.samples, work.clients[client], rate, constants, order)
            steps = torch.tensor(float(trained.steps), device=network.vector.device)
            uploads, kept = half.finish(network.vector, received, own, constants, steps, rate)
            gathering.add(position, {MODEL: network.vector, **uploads}, kept, trained)
            progress(position + 1)
        return gathering.result(memory)
