"""Local training of one client: the hot path.

A client's data are gathered once per epoch in their compact type and encoded batch by batch; the model, its gradient
and the optimizer's state are flat vectors. The code does not depend on the strategy: the hooks of its client side
change plain SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from fedrun.data.samples import Samples
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, shuffles
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import Vectors
from fedrun.training.batches import batches, epochs
from fedrun.training.optimizer_step import fresh_state
from fedrun.training.record import BatchedRecord, Record, RunningRecord, Trained
from fedrun.training.recorded_steps import RecordedSteps, can_record
from fedrun.training.steps import Steps


def train(
    network: FlatNetwork,
    strategy: ClientStrategy,
    local: LocalTraining,
    batch_count: int,
    samples: Samples,
    indices: torch.Tensor,
    rate: float,
    constants: Vectors,
    generator: torch.Generator,
    optimizer: torch.Tensor | None = None,
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Trained:
    """Train the loaded network on one client's samples, in place.

    Args:
        network: holds the model to start from; afterwards the trained model.
        strategy: the client strategy, whose hooks change plain SGD.
        local: hyper-parameters.
        batch_count: number of batches.
        samples: the dataset.
        indices: the client's sample numbers, int64 ``[n_k]``.
        rate: η_t.
        constants: the result of :meth:`ClientStrategy.constants`.
        generator: draws the order of the samples.
        optimizer: its state ``[S]`` to begin with, updated in place; None: a new state.
        augment: changes the compact inputs ``[n, ...]`` of one epoch after another; None: no augmentation.
    """
    trainable = network.vector[: network.layout.trainable]
    state = fresh_state(trainable, local) if optimizer is None else optimizer
    batch = len(indices) if local.batch_size is None else local.batch_size
    orders = epochs(len(indices), local.batch_size, batch_count, generator, shuffles(strategy))
    with _steps(network, strategy, local, rate, constants, samples, state) as steps:
        made = 0
        for epoch, order in enumerate(orders):
            mask = strategy.frozen(network.layout, epoch)
            frozen = None if mask is None else mask.to(trainable.device)
            inputs, labels = samples.gather(indices[order])
            if augment is not None:
                inputs = augment(inputs)
            for x, y in batches(inputs, labels, batch, samples.encoding):
                made += steps.step(x, y, frozen)
            steps.end_epoch()
    return steps.trained(made)


def _steps(
    network: FlatNetwork,
    strategy: ClientStrategy,
    local: LocalTraining,
    rate: float,
    constants: Vectors,
    samples: Samples,
    state: torch.Tensor | None,
) -> Steps | RecordedSteps:
    """The steps of one client, recorded if the network's functions are."""
    graphs, device = network.cuda_graphs, network.vector.device
    build = partial(Steps, network, strategy, local, rate, samples.task)
    if graphs is None or not can_record(strategy, samples.encoding):
        record: Record = BatchedRecord(samples.task) if device.type == "cpu" else RunningRecord(samples.task, device)
        return build(constants, state, record)

    def recorded() -> RecordedSteps:
        record, references = RunningRecord(samples.task, device), len(strategy.reference_models)
        return RecordedSteps(graphs, network, build, constants, state, record, references)

    shapes = tuple((name, vector.shape) for name, vector in constants.items())
    key = "steps", strategy, replace(local, epochs=None, steps=1), shapes
    return graphs.cached(key, recorded, version=rate).of(constants, state)


def full_gradient(network: FlatNetwork, samples: Samples, indices: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The gradient of the loaded model's mean loss over some samples, in evaluation mode: float32 ``[T]``."""
    total, count = torch.zeros_like(network.gradient), 0.0
    for part in torch.split(indices, batch_size):
        inputs, targets = samples.gather(part)
        outputs = network.evaluated(samples.encoding(inputs))
        losses, weights = samples.task.loss(outputs, targets), samples.task.weights(targets)
        total += network.backward((losses if weights is None else losses * weights).sum())
        count += len(part) if weights is None else float(weights.sum())
    return total / max(count, 1)
