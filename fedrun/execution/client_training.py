"""Local training of one client by itself."""

from __future__ import annotations

import torch

from fedrun.execution.context import ExecutionContext
from fedrun.strategies.vectors import Vectors
from fedrun.system.randomness import address, generator, seed_generators
from fedrun.training.client_round import ClientRound
from fedrun.training.noised_steps import train_noised
from fedrun.training.tally import Trained
from fedrun.training.train import train


def train_client(
    context: ExecutionContext,
    batch_count: int,
    client: int,
    round: int,
    start: torch.Tensor,
    constants: Vectors,
    optimizer: torch.Tensor | None = None,
) -> Trained:
    """Train one client; the network then holds its model.

    Args:
        context: the network, the samples, and how clients train; its seed is that of the random choices.
        batch_count: number of batches.
        client: its number.
        round: t, for the learning rate and the random choices.
        start: the model ``[P]`` to start from.
        constants: the result of :meth:`ClientStrategy.constants`.
        optimizer: its state to begin with, updated in place; None: a new state.
    """
    samples, seed = context.samples, context.seed
    context.network.load(start)
    seed_generators(address(seed, "forward", round, client), context.network.vector.device)
    order = generator(seed, "batches", round, client)
    augment = None if samples.augmentation is None else samples.augmentation.drawn(seed, round, client)
    trained = ClientRound(
        network=context.network,
        strategy=context.client,
        local=context.local,
        samples=samples,
        indices=context.clients[client],
        rate=context.local.rate(round),
        constants=constants,
        optimizer=optimizer,
        augment=augment,
    )
    if context.noised_steps is None:
        return train(trained, batch_count, order)
    noise = generator(seed, "sample noise", round, client)
    return train_noised(trained, batch_count, context.noised_steps, order, noise)
