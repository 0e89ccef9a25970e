"""Local training by DP-SGD (Abadi et al., 2016, arXiv 1607.00133).

The gradient of every sample is clipped, and noise is added to the sum of a step.
"""

from __future__ import annotations

import logging

import torch

from fedrun.data.samples import Samples
from fedrun.data.tasks.base import Task
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client import ClientStrategy, Outputs, overrides
from fedrun.strategies.client_contract import (
    check_differentiable,
    check_separable,
    checked_linear_correction,
    mapped_losses,
)
from fedrun.strategies.direction_contract import checked_direction
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError
from fedrun.training.client_round import ClientRound
from fedrun.training.optimizer_step import optimizer_step, repair
from fedrun.training.tally import Trained, weighted_scores
from fedrun.uploads.privacy.base import NoisedSteps
from fedrun.uploads.privacy.clipping import clip_factor, joint_norm

log = logging.getLogger(__name__)

GRADIENTS = 2**26
"""Numbers of single samples' gradients in memory at once: 256 MiB."""


def train_noised(
    client: ClientRound, step_count: int, noised: NoisedSteps, draw: torch.Generator, noise: torch.Generator
) -> Trained:
    """Train one client, in place.

    A step draws each sample with probability q_s, and may draw none.

    Args:
        client: what it trains on, and how; its strategy may ask for one gradient in each step.
        step_count: number of steps.
        noised: C, z and q_s.
        draw: generator that draws the samples.
        noise: generator of the noise.
    """
    network, strategy, local, constants = client.network, client.strategy, client.local, client.constants
    network.network.train()
    weights, state, indices = network.weights, client.optimizer_state(), client.indices
    correction = checked_linear_correction(strategy, constants, len(weights))
    gradients = SampleGradients(network, strategy, constants, client.samples.task)
    directs = overrides(strategy, "direction")
    computed = 0
    frozen: torch.Tensor | None = None

    def noised_gradient() -> torch.Tensor:
        nonlocal computed
        computed += 1
        drawn = indices[torch.rand(len(indices), generator=draw, dtype=torch.float64) < noised.probability]
        gradient = torch.zeros_like(weights)
        if len(drawn):
            inputs, targets = client.gather(drawn)
            gradients.add_clipped(gradient, client.samples.encoding(inputs), targets, noised.clip, frozen)
        if noised.noise_multiplier:
            normal = torch.randn(len(weights), generator=noise).to(weights.device)
            gradient.add_(normal, alpha=noised.noise_multiplier * noised.clip)
        # g = (Σ_i g_i min(1, C / ‖g_i‖) + z C ξ) / (q_s n_k)
        return gradient.div_(noised.probability * len(indices))

    def gradient_at(parameters: torch.Tensor, batch: int, *, moves_buffers: bool = True) -> torch.Tensor:
        current = weights.clone()
        weights.copy_(parameters)
        gradient = noised_gradient()
        weights.copy_(current)
        return gradient

    for step in range(step_count):
        frozen = client.frozen(int((step + 0.5) * noised.probability))
        if directs:
            gradient = checked_direction(strategy, strategy.direction, gradient_at, weights, constants)
        else:
            gradient = noised_gradient()
        optimizer_step(weights, gradient, state, client.rate, local, correction, frozen)
        if local.repair_nonfinite:
            repair(weights)
    if computed != step_count:
        raise InputError(
            f"{type(strategy).__name__}.direction: uses {computed} gradients in {step_count} steps; allowed with "
            "privacy=sample_level: one gradient per step"
        )
    return Trained(step_count, gradients.processed, gradients.losses, gradients.scores, gradients.weights)


class SampleGradients:
    """The gradients of single samples, and sums over the processed samples.

    Args:
        network: the loaded network.
        strategy: the client strategy, with its loss.
        constants: the result of :meth:`ClientStrategy.constants`.
        task: task of the dataset.

    Attributes:
        processed: the number of samples so far.
        losses: Σ of their weighted losses, float32 scalar on the device.
        scores: Σ of the task's weighted scores, a scalar on the device.
        weights: Σ of their weights, a scalar on the device.
    """

    def __init__(self, network: FlatNetwork, strategy: ClientStrategy, constants: Vectors, task: Task) -> None:
        module, self._views = network.network, network.layout.views
        self._strategy, self._constants = strategy, constants
        self._separable = not overrides(strategy, "loss")
        # by tensor: the gradient of a view of the whole vector would be as long as the vector
        self._weights = self._views(network.weights)
        self._task = task
        self.processed = 0
        self.losses = network.vector.new_zeros(())
        self.scores = network.vector.new_zeros(())
        self.weights = network.vector.new_zeros((), dtype=torch.float64)

        def loss(
            parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            outputs, targets = torch.func.functional_call(module, parameters, (x[None],)).float(), y[None]
            instead = "a loss of tensor operations alone, or no privacy=sample_level"
            losses = mapped_losses(strategy, Outputs(outputs, task=task), targets, constants, instead)
            check_differentiable(strategy, losses)
            return task.mean_of(losses, targets), outputs[0]

        self._of = torch.vmap(
            torch.func.grad_and_value(loss, has_aux=True), in_dims=(None, 0, 0), randomness="different"
        )

    def add_clipped(
        self, total: torch.Tensor, x: torch.Tensor, y: torch.Tensor, clip: float, frozen: torch.Tensor | None = None
    ) -> None:
        """Add Σ_i g_i min(1, C / ‖g_i‖) over samples ``[B, ...]`` to a vector ``[T]``, in place.

        A gradient that is not finite counts as zero, and so do the entries of each gradient that ``frozen``
        (bool ``[T]``) marks.
        """
        most = max(1, GRADIENTS // len(total))
        for inputs, targets in zip(torch.split(x, most), torch.split(y, most), strict=True):
            gradients, (losses, outputs) = self._of(self._weights, inputs, targets)
            self._check_separable(outputs.detach(), targets)
            for name, unmoved in ({} if frozen is None else self._views(frozen)).items():
                gradients[name].masked_fill_(unmoved, 0.0)
            norms = joint_norm([gradient.reshape(len(inputs), -1) for gradient in gradients.values()])
            if not bool((finite := norms.isfinite()).all()):  # such a sample counts as zero
                for gradient in gradients.values():
                    gradient[~finite] = 0.0
            factor = clip_factor(norms, clip).where(finite, 0.0)
            for name, tensor in self._views(total).items():
                tensor.add_(torch.tensordot(factor, gradients[name], dims=1))
            self.processed += len(inputs)
            weights = self._task.weights(targets)
            weights = torch.ones_like(losses) if weights is None else weights
            self.losses = self.losses + (losses.detach() * weights).sum()
            self.scores = self.scores + weighted_scores(self._task, outputs.detach(), targets)
            self.weights = self.weights + weights.sum()

    def _check_separable(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Check on the first step of two samples or more that the first one's loss is the same without the others.

        Raises:
            InputError: it is not.
        """
        if self._separable or len(targets) < 2:
            return
        reason = "privacy=sample_level computes the gradient of each sample alone; allowed: another loss, or no privacy"
        check_separable(self._strategy, outputs, targets, 1, self._constants, self._task, reason)
        self._separable = True


def sample_gradients_problem(network: FlatNetwork, samples: Samples) -> str | None:
    """The reason why a network has no gradients of single samples; None if those of two samples can be computed."""
    module = network.network.train()
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            return f"{type(layer).__name__} layers, which mix the samples of a batch"
        if isinstance(layer, torch.nn.RNNBase):
            return f"{type(layer).__name__} layers, whose gradients of single samples take minutes"
    if network.repeats_layers:
        return "a layer in two places"
    if network.hooks_gradients:
        return "parameters with hooks, which gradients of single samples do not pass"
    inputs, targets = samples.gather(torch.zeros(2, dtype=torch.int64))
    gradients = SampleGradients(network, ClientStrategy(), {}, samples.task)
    try:
        gradients.add_clipped(torch.zeros_like(network.weights), samples.encoding(inputs), targets, 1.0)
    except RuntimeError as error:
        log.debug("torch.vmap: %s", error)
        return "layers whose gradients of single samples torch.vmap cannot compute"
    return None
