"""Clients one after the other, in this process."""

from __future__ import annotations

import torch

from fedrun.client_memory import ClientMemory
from fedrun.executors.base import Executor, Gathering, Progress
from fedrun.randomness import address, generator
from fedrun.strategies.base import CohortUpdate, Vectors
from fedrun.training import train


class InProcess(Executor):
    """Trains a cohort's clients in turn on one network."""

    def run(
        self, cohort: torch.Tensor, round: int, received: Vectors, memory: ClientMemory, progress: Progress
    ) -> tuple[CohortUpdate, ClientMemory]:
        work = self.workplace
        network, half = work.network, work.client
        rate = work.local.rate(round)
        gathering = Gathering(work, cohort)
        initial_losses = self.initial_losses(cohort, received, gathering)
        for position, client in enumerate(cohort.tolist()):
            own = memory.of(client, network.vector.device)
            info = self.info(client, round, None if initial_losses is None else initial_losses[position])
            constants = half.constants(received, own, info)
            network.load(half.start(received, own))
            torch.manual_seed(address(work.seed, "forward", round, client))  # for dropout
            order = generator(work.seed, "batches", round, client)
            augmentation = work.samples.augmentation
            augment = None if augmentation is None else augmentation.drawn(work.seed, round, client)
            trained = train(
                network, half, work.local, work.samples, work.clients[client], rate, constants, order, augment
            )
            uploads, kept = half.finish(network.vector, received, own, constants, info)
            gathering.add(position, uploads, kept, trained)
            progress(position + 1)
        return gathering.result(memory)
