"""Local training: the hot path.

A client's data are gathered once per epoch in their compact type and encoded batch by batch; the model, its gradient
and its momentum are flat vectors. Nothing here knows which strategy runs: the client half's hooks say what differs from
SGD.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass as value
from functools import partial
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic.dataclasses import dataclass

from fedrun.allowed_values import shown
from fedrun.datasets.augmentation import Augmentation
from fedrun.datasets.base import Dataset, Encoding
from fedrun.descent import Descent
from fedrun.errors import InputError
from fedrun.parameters import FlatNetwork
from fedrun.precision import Precision, computing
from fedrun.recipe import STRICT
from fedrun.strategies.base import EARLIER, ClientHalf, Pull, Vectors

BLOCK = 2**18
"""Numbers that are encoded at once where batches are small: 1 MiB of float32."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LocalTraining:
    """How every client trains. The optimizer is fresh in every round, unless the client half keeps its momentum.

    Attributes:
        lr: η > 0, the learning rate in the first round.
        lr_decay: the rate in round t = 0, 1, .. is lr · lr_decay^t.
        momentum: of SGD, in [0, 1).
        weight_decay: λ ≥ 0 of the term λ/2 ‖y‖² over the parameters, added after gradient clipping.
        batch_size: B ≥ 1 samples; None: all of a client's samples are one batch. The last batch of an epoch may be
            smaller.
        epochs: E ≥ 1 passes over the client's samples, or None where ``steps`` is given.
        steps: K ≥ 1 SGD steps, begun anew with a reshuffled epoch as often as needed, or None where ``epochs`` is
            given.
        max_gradient_norm: the gradient (after the strategy's correction) is scaled down to this norm; None: never.
        precision: ``bfloat16``: forward and backward passes of the SGD steps multiply numbers with 8 significant bits,
            faster where the machine has instructions for it; results differ from the third digit on.
        repair_nonfinite: replace NaN and infinities in the parameters by 1e-5 after every SGD step and after every
            aggregation, as TurboSVM-FL's published code does. It matters only for runs that diverge.
    """

    lr: Annotated[float, Gt(0)]
    lr_decay: Annotated[float, Gt(0), Le(1)]
    momentum: Annotated[float, Ge(0), Lt(1)]
    weight_decay: Annotated[float, Ge(0)]
    batch_size: Annotated[int, Ge(1)] | None
    epochs: Annotated[int, Ge(1)] | None
    steps: Annotated[int, Ge(1)] | None
    max_gradient_norm: Annotated[float, Gt(0)] | None
    precision: Precision
    repair_nonfinite: bool

    def check(self) -> None:
        """Refuse settings that contradict each other."""
        if (self.epochs is None) == (self.steps is None):
            raise InputError(
                f"local.epochs={shown(self.epochs)} and local.steps={shown(self.steps)}: exactly one of the two "
                "must be a number, the other null"
            )

    def rate(self, round: int) -> float:
        """η_t, the learning rate in round t = 0, 1, .."""
        return self.lr * self.lr_decay**round


@value(frozen=True)
class Samples:
    """A dataset's samples where they are needed: gathered in their compact type, encoded on the device.

    Attributes:
        inputs: ``[n, ...]`` in the dataset's compact type, uint8 or float32, on the CPU (possibly memory-mapped) or on
            the device.
        targets: int64 ``[n]``, likewise.
        encoding: compact batch to network input.
        device: where the network is.
        augmentation: how compact training inputs are changed at random, or None.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    encoding: Encoding
    device: torch.device
    augmentation: Augmentation | None = None

    @classmethod
    def of(cls, dataset: Dataset, device: torch.device) -> Samples:
        """A dataset's samples, moved to the device unless it is the CPU."""
        if device.type == "cpu":
            return cls(dataset.inputs, dataset.targets, dataset.encoding, device, dataset.augmentation)
        inputs, targets = dataset.inputs.to(device), dataset.targets.to(device)
        return cls(inputs, targets, dataset.encoding, device, dataset.augmentation)

    def gather(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compact inputs ``[*indices.shape, ...]`` and targets ``[*indices.shape]`` of sample numbers of any shape."""
        flat = indices.flatten().to(self.inputs.device)
        inputs, targets = self.inputs.index_select(0, flat), self.targets.index_select(0, flat)
        return inputs.view(*indices.shape, *inputs.shape[1:]).to(self.device), targets.view(indices.shape).to(
            self.device
        )


def epochs(
    samples: int, local: LocalTraining, generator: torch.Generator, shuffled: bool = True
) -> Iterator[torch.Tensor]:
    """The order in which a client visits its samples: one permutation (int64 ``[n_k]``) per epoch begun.

    Under ``local.steps`` the last epoch is cut after the last sample needed.
    """

    def order() -> torch.Tensor:
        return torch.randperm(samples, generator=generator) if shuffled else torch.arange(samples)

    if local.epochs is not None:
        for _ in range(local.epochs):
            yield order()
        return
    assert local.steps is not None
    batch = min(samples, local.batch_size or samples)
    left = local.steps
    while left > 0:
        yield order()[: left * batch]
        left -= -(-samples // batch)


def steps_of(samples: torch.Tensor, local: LocalTraining, batches_per_step: int = 1) -> torch.Tensor:
    """How many SGD steps clients with so many samples (int64 ``[n]``) make, int64 ``[n]``.

    Under ``local.epochs``, steps of several batches are as many as it takes to use every batch.
    """
    if local.steps is not None:
        return torch.full_like(samples, local.steps)
    assert local.epochs is not None
    batches = torch.ones_like(samples) if local.batch_size is None else -(-samples // local.batch_size)
    return -(-local.epochs * batches // batches_per_step)


def processed(samples: int, local: LocalTraining, passes: tuple[int, ...] = (1,)) -> int:
    """How many samples a client with this many processes in its local training, forward and backward.

    Args:
        samples: n_k.
        local: with the client's own number of epochs or steps.
        passes: how often each batch of a step is processed (see :attr:`ClientHalf.passes`).
    """
    batch = min(samples, local.batch_size or samples)
    per_epoch = -(-samples // batch)
    count = local.epochs * per_epoch if local.epochs is not None else local.steps or 0
    missing = per_epoch * batch - samples  # in the last batch of every epoch
    each, whole = len(passes), count // len(passes) * sum(passes) + sum(passes[: count % len(passes)])
    return batch * whole - missing * sum(passes[last % each] for last in range(per_epoch - 1, count, per_epoch))


@value(frozen=True)
class Trained:
    """What one client's local training produced.

    Attributes:
        steps: SGD steps made.
        processed: samples processed.
        loss_sum: sum over processed samples of :meth:`ClientHalf.loss`, float32 scalar on the device.
        correct: number of processed samples that were predicted correctly, int64 scalar on the device.
        compared: samples processed by forward passes under models to compare with.
    """

    steps: int
    processed: int
    loss_sum: torch.Tensor
    correct: torch.Tensor
    compared: int = 0


def sgd_step(
    weights: torch.Tensor,
    gradient: torch.Tensor,
    momentum: torch.Tensor | None,
    rate: float,
    local: LocalTraining,
    decay: torch.Tensor | None = None,
) -> None:
    """One step of SGD in place, on one client's parameters ``[T]`` or on a cohort's ``[C, T]``.

    The update rule is ``torch.optim.SGD``'s. ``gradient`` is used as scratch space; ``momentum`` (zeros at first, None
    where the momentum is 0) is updated. ``decay`` (``[1]`` or ``[C, 1]``) is a weight decay beside ``local``'s.
    """
    if local.max_gradient_norm is not None:
        norm = gradient.norm(dim=-1, keepdim=True)
        gradient.mul_((local.max_gradient_norm / (norm + 1e-6)).clamp_max_(1.0))
    if local.weight_decay:
        gradient.add_(weights, alpha=local.weight_decay)
    if decay is not None:
        gradient.addcmul_(weights, decay)
    if momentum is not None:
        momentum.mul_(local.momentum).add_(gradient)
        gradient = momentum
    weights.add_(gradient, alpha=-rate)


def drift(pull: Pull | None, local: LocalTraining, rate: float) -> Callable[[torch.Tensor], object] | None:
    """What a step without clipping and momentum does to parameters beside following the loss's gradient.

    y ← (1 − η (strength + λ)) y − η shift, in place on ``[..., T]`` and in one pass; None: nothing.
    """
    if pull is None:
        return (lambda weights: weights.mul_(1 - rate * local.weight_decay)) if local.weight_decay else None
    strength = pull.strength
    if local.weight_decay:
        strength = (pull.shift.new_zeros(1) if strength is None else strength) + local.weight_decay
    if strength is None:
        return lambda weights: weights.add_(pull.shift, alpha=-rate)
    shift, kept = pull.shift * -rate, 1 - rate * strength
    return lambda weights: torch.addcmul(shift, weights, kept, out=weights)


class FrozenEncoders:
    """The encoders of fixed models: they embed without gradient, and nothing changes them.

    Args:
        network: whose encoder it is.
        models: ``[P]`` each, by name.
    """

    def __init__(self, network: FlatNetwork, models: Vectors) -> None:
        self._encoder = copy.deepcopy(network.network.get_submodule("encoder"))
        for module in self._encoder.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.track_running_stats = False  # in training mode it would move them
        prefix = "encoder."
        self._tensors = {
            name: {key.removeprefix(prefix): view for key, view in views.items() if key.startswith(prefix)}
            for name, views in ((name, network.layout.views(model)) for name, model in models.items())
        }

    def __call__(self, inputs: torch.Tensor, training: bool = False) -> Vectors:
        """The embeddings ``[B, d]`` of a batch under each model.

        Args:
            inputs: encoded, ``[B, ...]``.
            training: use the batch's statistics in BatchNorm, instead of the running ones, and drop units in dropout.
        """
        self._encoder.train(training)
        with torch.no_grad():
            return {
                name: torch.func.functional_call(self._encoder, tensors, (inputs,))
                for name, tensors in self._tensors.items()
            }


class Objective:
    """What one client minimises: gradients batch by batch, and a record of what was processed.

    Args:
        network: the loaded network, set to training mode.
        half: what differs from plain SGD.
        constants: from :meth:`ClientHalf.constants`.
        precision: of forward and backward passes.
    """

    def __init__(
        self, network: FlatNetwork, half: ClientHalf, constants: Vectors, precision: Precision = "float32"
    ) -> None:
        self._network = network
        self._precision = precision
        self._half = half
        self._constants = constants
        self._plain = type(half).loss is ClientHalf.loss  # then one fused call computes the mean
        self._frozen = (
            FrozenEncoders(network, {name: constants[name] for name in half.compares}) if half.compares else None
        )
        self._embeds = bool(half.compares) or half.recalls
        self._encoder, self._head = (network.network.get_submodule(name) for name in ("encoder", "head"))
        self._recalled: list[torch.Tensor] = []  # embeddings [n_k, d] of each finished epoch
        self._embedded: list[torch.Tensor] = []  # of the current one, batch by batch
        self._compared = 0
        self._losses: list[torch.Tensor] = []
        self._sizes: list[int] = []
        self._logits: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        network.network.train()

    def gradient(self, x: torch.Tensor, y: torch.Tensor, index: int = 0) -> torch.Tensor:
        """The gradient ``[T]`` of :meth:`loss` at the loaded model, overwritten by the next call."""
        return self._network.backward(self.loss(x, y, index))

    def loss(self, x: torch.Tensor, y: torch.Tensor, index: int = 0) -> torch.Tensor:
        """A batch's mean loss at the loaded model, a scalar with its graph.

        Args:
            x: encoded inputs ``[B, ...]``.
            y: int64 ``[B]``.
            index: of the batch within its epoch.
        """
        half, constants = self._half, self._constants
        if not self._embeds:
            with self._computing:
                z = self._network.network(x)
            z = z.float()
            loss = torch.nn.functional.cross_entropy(z, y) if self._plain else half.loss(z, y, constants).mean()
        else:
            with self._computing:
                embeddings = self._encoder(x)
                z = self._head(embeddings)
            z, embeddings = z.float(), embeddings.float()
            losses = half.loss(z, y, constants)
            if others := self._others(x, embeddings, index):
                losses = losses + half.contrast(embeddings, others, constants)
            loss = losses.mean()
        self._losses.append(loss.detach())
        self._sizes.append(len(y))
        self._logits.append(z.detach())
        self._targets.append(y)
        return loss

    def _others(self, encoded: torch.Tensor, embeddings: torch.Tensor, index: int) -> Vectors:
        """The embeddings that those of a batch are compared with; none in the first epoch of a half that recalls."""
        recalled: dict[str, torch.Tensor] = {}
        if self._half.recalls:
            self._embedded.append(embeddings.detach())
            if not self._recalled:
                return {}
            # Right for whole batches; TurboSVM-FL's code takes the same slice for a last, shorter one.
            first, size = index * len(embeddings), len(embeddings)
            recalled[EARLIER] = torch.stack(self._recalled)[:, first : first + size]
        with self._computing:
            others = {} if self._frozen is None else self._frozen(encoded)
        self._compared += len(others) * len(encoded)
        return {name: each.float() for name, each in others.items()} | recalled

    @property
    def _computing(self) -> AbstractContextManager[object]:
        return computing(self._precision, self._network.vector.device)

    def end_epoch(self) -> None:
        """Remember the epoch's embeddings for later ones, if the client half wants them."""
        if self._half.recalls:
            self._recalled.append(torch.cat(self._embedded))
            self._embedded.clear()

    def trained(self, steps: int) -> Trained:
        """The record, after this many steps."""
        losses = torch.stack(self._losses)
        correct = (torch.cat(self._logits).argmax(1) == torch.cat(self._targets)).sum()
        return Trained(steps, sum(self._sizes), losses @ losses.new_tensor(self._sizes), correct, self._compared)


def train(
    network: FlatNetwork,
    half: ClientHalf,
    local: LocalTraining,
    samples: Samples,
    own: torch.Tensor,
    rate: float,
    constants: Vectors,
    generator: torch.Generator,
    momentum: torch.Tensor | None = None,
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Trained:
    """Train the loaded network on one client's samples, in place.

    Args:
        network: holds the model to start from; afterwards the trained model.
        half: what differs from plain SGD.
        local: hyper-parameters.
        samples: the dataset.
        own: the client's sample numbers, int64 ``[n_k]``.
        rate: η_t.
        constants: from :meth:`ClientHalf.constants`.
        generator: draws the order of the samples.
        momentum: ``[T]`` to begin with, updated in place; None: zero.
        augment: changes the compact inputs ``[n, ...]`` of one epoch after another; None: they stay as they are.
    """
    weights = network.vector[: network.layout.trainable]
    if momentum is None and local.momentum:
        momentum = torch.zeros_like(weights)
    pull = half.pull(constants)
    plain = momentum is None and local.max_gradient_norm is None and half.takes_the_gradient
    beside = drift(pull, local, rate) if plain else None
    objective = Objective(network, half, constants, local.precision)
    batch = len(own) if local.batch_size is None else local.batch_size
    group: list[tuple[torch.Tensor, torch.Tensor]] = []  # the batches of a step with a direction of its own

    def gradient_at(at: torch.Tensor, which: int) -> torch.Tensor:
        here = weights.clone()
        weights.copy_(at)
        found = objective.gradient(*group[which]).clone()
        weights.copy_(here)
        return found

    def step(x: torch.Tensor, y: torch.Tensor, index: int) -> bool:
        if descent is not None:
            descent.step(objective.loss(x, y, index), rate, None if beside is None else partial(beside, weights))
            return True
        if not half.directs:
            move = objective.gradient(x, y, index)
        else:
            group.append((x, y))
            if len(group) < len(half.passes):
                return False
            move = half.direction(gradient_at, weights, constants)
            group.clear()
        if pull is not None:
            pull.add_to(move, weights)
        half.correct(move, weights, constants)
        sgd_step(weights, move, momentum, rate, local, None if pull is None else pull.decay)
        return True

    with Descent(network.network) if plain else nullcontext() as descent:
        steps = 0
        for order in epochs(len(own), local, generator, half.shuffles):
            inputs, labels = samples.gather(own[order])
            if augment is not None:
                inputs = augment(inputs)
            for index, (x, y) in enumerate(batches(inputs, labels, batch, samples.encoding)):
                steps += step(x, y, index)
                if local.repair_nonfinite:
                    repair(weights)
            objective.end_epoch()
    return objective.trained(steps)


def batches(
    inputs: torch.Tensor, labels: torch.Tensor, batch_size: int, encoding: Encoding
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Encoded inputs and labels, batch by batch; small batches are encoded together, in blocks that fit a cache."""
    size = batch_size * max(1, BLOCK // (batch_size * inputs[0].numel()))
    for block, own in zip(torch.split(inputs, size), torch.split(labels, size), strict=True):
        yield from zip(torch.split(encoding(block), batch_size), torch.split(own, batch_size), strict=True)


def full_gradient(network: FlatNetwork, samples: Samples, own: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The gradient of the loaded model's mean loss over some samples, in evaluation mode: float32 ``[T]``."""
    module = network.network.eval()
    total = torch.zeros_like(network.gradient)
    for part in torch.split(own, batch_size):
        inputs, labels = samples.gather(part)
        loss = torch.nn.functional.cross_entropy(module(samples.encoding(inputs)), labels, reduction="sum")
        total += network.backward(loss)
    return total / len(own)


def repair(parameters: torch.Tensor) -> None:
    """Replace NaN, +∞ and −∞ by 1e-5, in place (TurboSVM-FL's guard)."""
    torch.nan_to_num_(parameters, nan=1e-5, posinf=1e-5, neginf=1e-5)
