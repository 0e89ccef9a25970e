"""The arithmetic of a network."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd


def multiply_adds(network: torch.nn.Module, inputs: torch.Tensor) -> int:
    """The number of multiply-add pairs of a forward pass.

    Linear, convolutional, recurrent and attention layers' products with weights are counted; others cost little.

    Args:
        network: a network in any mode. It computes in evaluation mode, and its mode is restored.
        inputs: a batch of network inputs.
    """
    total, recurrent = 0, torch.nn.RNNBase | torch.nn.RNNCellBase

    def count(layer: Any, read: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        nonlocal total
        # states, or of a user's layer the first of its outputs; data: of packed ones
        first = (output if isinstance(output, torch.Tensor) else output[0]).data
        if isinstance(layer, _ConvTransposeNd):
            first = [*read, *named.values()][0]  # each number that it reads is multiplied by its kernels
        if isinstance(layer, recurrent | torch.nn.MultiheadAttention):
            weights = [parameter for parameter in layer.parameters() if parameter.dim() > 1]
            positions = first.numel() // first.shape[-1]
        else:
            weights = [layer.weight]  # also where it is computed from other parameters
            positions = first.numel() // layer.weight.shape[1 if is_conv1d(layer) else 0]
        total += positions * sum(weight.numel() for weight in weights)

    counted = (torch.nn.Linear, _ConvNd, recurrent, torch.nn.MultiheadAttention)
    hooks = [
        layer.register_forward_hook(count, with_kwargs=True)
        for layer in network.modules()
        if isinstance(layer, counted) or is_conv1d(layer)
    ]
    training = [layer for layer in network.modules() if layer.training]
    network.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
        for layer in training:
            layer.training = True
    return total


def is_conv1d(layer: torch.nn.Module) -> bool:
    """Whether it is GPT-2's linear layer, with weights ``[in, out]``, of transformers, which may not be installed."""
    return (type(layer).__module__, type(layer).__name__) == ("transformers.pytorch_utils", "Conv1D")
