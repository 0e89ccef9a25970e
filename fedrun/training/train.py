"""Local training of one client: the hot path.

A client's data are gathered once per epoch in their compact type and encoded batch by batch; the model, its gradient
and the optimizer's state are flat vectors. The code does not depend on the strategy: the hooks of its client side
change plain SGD.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from fedrun.data.samples import Samples
from fedrun.models.flat_network import FlatNetwork
from fedrun.training.batches import batches, epochs
from fedrun.training.client_round import ClientRound
from fedrun.training.recorded_steps import RecordedSteps, can_record
from fedrun.training.steps import Steps
from fedrun.training.tally import BatchedTally, RunningTally, Tally, Trained


def train(client: ClientRound, batch_count: int, generator: torch.Generator) -> Trained:
    """Train one client, in place, on this many batches; the generator draws the order of its samples."""
    local, indices = client.local, client.indices
    batch = len(indices) if local.batch_size is None else local.batch_size
    # earlier embeddings are those of the same positions, and so of the same samples
    shuffled = "earlier_embeddings" not in client.strategy.wants
    orders = epochs(len(indices), local.batch_size, batch_count, generator, shuffled)
    with _steps(client) as steps:
        for epoch, order in enumerate(orders):
            frozen = client.frozen(epoch)
            inputs, labels = client.gather(indices[order])
            for x, y in batches(inputs, labels, batch, client.samples.encoding):
                steps.step(x, y, frozen)
            steps.end_epoch()
    return steps.trained(batch_count // len(client.strategy.passes))


def _steps(client: ClientRound) -> Steps | RecordedSteps:
    """The steps of one client, recorded if the network's functions are."""
    network, strategy, local, task = client.network, client.strategy, client.local, client.samples.task
    graphs, device = network.cuda_graphs, network.vector.device
    constants, state = client.constants, client.optimizer_state()
    build = partial(Steps, network, strategy, local, client.rate, task)
    if graphs is None or not can_record(strategy, client.samples.encoding):
        tally: Tally = BatchedTally(task) if device.type == "cpu" else RunningTally(task, device)
        return build(constants, state, tally)

    def recorded() -> RecordedSteps:
        tally, references = RunningTally(task, device), len(strategy.reference_models)
        return RecordedSteps(graphs, network, build, constants, state, tally, references)

    shapes = tuple((name, vector.shape) for name, vector in constants.items())
    key = "steps", strategy, replace(local, epochs=None, steps=1), shapes
    return graphs.cached(key, recorded, version=client.rate).of(constants, state)


def full_gradient(network: FlatNetwork, samples: Samples, indices: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The gradient of the loaded model's mean loss over some samples, in evaluation mode: float32 ``[T]``."""
    total, count = torch.zeros_like(network.gradient), 0.0
    for part in torch.split(indices, batch_size):
        inputs, targets = samples.gather(part)
        outputs = network.evaluated(samples.encoding(inputs))
        losses, weights = samples.task.loss(outputs, targets), samples.task.weights(targets)
        total += network.backward((losses if weights is None else losses * weights).sum())
        count += len(part) if weights is None else float(weights.sum())
    return total / (count or 1)
