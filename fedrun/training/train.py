"""Local training of one client: the hot path.

A client's data are gathered once per epoch in their compact type and encoded batch by batch; the model, its gradient
and the optimizer's state are flat vectors. The code does not depend on the strategy: the hooks of its client side
change plain SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch

from fedrun.data.samples import Samples
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, overrides, shuffles
from fedrun.strategies.contract import check_vector, linear_correction
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import Vectors
from fedrun.training.batches import batches, epochs
from fedrun.training.fused_sgd import FusedSGDStep
from fedrun.training.objective import Objective, Trained
from fedrun.training.optimizer_step import fresh_state, linear_update, optimizer_step, repair


def train(
    network: FlatNetwork,
    strategy: ClientStrategy,
    local: LocalTraining,
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
        samples: the dataset.
        indices: the client's sample numbers, int64 ``[n_k]``.
        rate: η_t.
        constants: from :meth:`ClientStrategy.constants`.
        generator: draws the order of the samples.
        optimizer: its state ``[S]`` to begin with, updated in place; None: a new state.
        augment: changes the compact inputs ``[n, ...]`` of one epoch after another; None: no augmentation.
    """
    weights, buffers = network.vector.tensor_split([network.layout.trainable])
    state = fresh_state(weights, local) if optimizer is None else optimizer
    correction = linear_correction(strategy, constants, len(weights))
    directs, freezes = overrides(strategy, "direction"), overrides(strategy, "frozen")
    fused = state is None and local.max_gradient_norm is None and not (directs or freezes)
    linear = linear_update(correction, local, rate) if fused else None
    objective = Objective(network, strategy, constants, samples.task, local.precision)
    batch = len(indices) if local.batch_size is None else local.batch_size
    group: list[tuple[torch.Tensor, torch.Tensor]] = []  # the batches of a step along `direction`

    def gradient_at(parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
        current, kept = weights.clone(), None if moves_buffers else buffers.clone()
        weights.copy_(parameters)
        gradient = objective.gradient(*group[batch]).clone()
        weights.copy_(current)
        if kept is not None:
            buffers.copy_(kept)
        return gradient

    def step(x: torch.Tensor, y: torch.Tensor, index: int, frozen: torch.Tensor | None) -> bool:
        if fused_step is not None:
            fused_step.step(objective.loss(x, y, index), rate, None if linear is None else partial(linear, weights))
            return True
        if not directs:
            gradient = objective.gradient(x, y, index)
        else:
            group.append((x, y))
            if len(group) < len(strategy.passes):
                return False
            gradient = strategy.direction(gradient_at, weights, constants)
            check_vector(strategy, "direction", gradient, len(weights))
            group.clear()
        optimizer_step(weights, gradient, state, rate, local, correction, frozen)
        return True

    with FusedSGDStep(network.network) if fused else nullcontext() as fused_step:
        steps = 0
        for epoch, order in enumerate(epochs(len(indices), local, generator, shuffles(strategy))):
            mask = strategy.frozen(network.layout, epoch)
            frozen = None if mask is None else mask.to(weights.device)
            inputs, labels = samples.gather(indices[order])
            if augment is not None:
                inputs = augment(inputs)
            for index, (x, y) in enumerate(batches(inputs, labels, batch, samples.encoding)):
                steps += step(x, y, index, frozen)
                if local.repair_nonfinite:
                    repair(weights)
            objective.end_epoch()
    return objective.trained(steps)


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
