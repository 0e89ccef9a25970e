"""Computation of a model for many clients at once, by ``torch.func``."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrun.execution.context import ExecutionContext
from fedrun.models.precision import computing
from fedrun.models.trial import mixes_samples

MIXED = 8
"""The number of samples in the batch on which a model is tried for mixing them."""


def vmap_problem(context: ExecutionContext) -> str | None:
    """The reason why a model cannot be computed for many clients at once; None if a step of two clients succeeds.

    The step is tried, because a user's model may count or draw random numbers in its forward pass.
    """
    network, samples = context.network, context.samples
    views, module = client_views(context), network.network.train()
    if network.repeats_layers:
        return "a model with a layer in two places"
    if network.hooks_gradients:
        return "a model with hooks of its parameters"
    inputs, targets = samples.gather(context.clients.samples[[0, 0]].expand(2, 2))

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with computing(context.local.precision, network.vector.device):
            logits = torch.func.functional_call(module, parameters, (x,))
        return samples.task.mean_loss(logits.float(), y)

    models = network.weights.expand(2, -1)
    try:
        gradients = torch.vmap(torch.func.grad(loss))(views(models), samples.encoding(inputs), targets)
    except RuntimeError as error:
        return f"a model that torch.vmap cannot compute for many clients at once ({str(error).splitlines()[0]})"
    if any(gradient.requires_grad for gradient in gradients.values()):
        return "a model that reads its parameters from other places than its layers, such as a list"
    if mixes_samples(module, samples.encoding(samples.gather(context.clients.samples[:MIXED])[0])):
        return "a model whose outputs for a sample depend on the other samples of the batch"
    return None


def client_views(context: ExecutionContext) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
    """The function from clients' vectors ``[C, P]`` or ``[C, T]`` to their named tensors, for ``torch.vmap``.

    GroupNorm copies its inputs in their own memory format. In bfloat16 that is channels-last if the kernels are, and
    vmap can copy in C order only; then the kernels are brought to C order.
    """
    network = context.network
    normalises = any(isinstance(module, torch.nn.GroupNorm) for module in network.network.modules())
    if context.local.precision == "float32" or not normalises:
        return network.layout.views
    return lambda vector: {name: view.contiguous() for name, view in network.layout.views(vector).items()}
