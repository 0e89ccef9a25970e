"""SGD steps that do not store the gradient.

A large linear layer's step, W ← W − η Gᵀ X (X the layer's inputs, G the gradient at its outputs), is one product that
adds to the weights in place. It takes 0.44 of the time of a step that writes a gradient as large as the weights, and
then reads and adds it (3 136 x 2 048 weights and 64 samples on a CPU). The weights are processed in blocks: for each
block first its part of the gradient at the inputs, G W, then its step. So each block is read from main memory once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import torch

LARGE = 2**18
"""The smallest number of weights of a layer that is fused; for smaller layers it costs more than it saves."""

BLOCK = 2**19
"""Weights in a block: few enough to stay in a cache from one product to the next."""


class FusedSGDStep:
    """Moves a network's parameters along the gradient inside a ``with FusedSGDStep(network) as step`` block.

    Args:
        network: its parameters are moved in place.
    """

    def __init__(self, network: torch.nn.Module) -> None:
        large = [
            layer
            for layer in dict.fromkeys(_called_only(network))  # several Sequentials may contain the same layer
            if type(layer) is torch.nn.Linear
            and "forward" not in vars(layer)  # replaced for this layer alone
            and isinstance(layer.weight, torch.nn.Parameter)  # pruned layers compute it before each pass
            and layer.weight.requires_grad
            and not layer.weight._backward_hooks  # they change the gradient, which is never stored
            and layer.weight.numel() >= LARGE
            and layer.weight.device.type == "cpu"  # on a GPU the additional kernel launches cost more
        ]
        # a weight's other owners may use it in another way than a linear layer
        owners: Counter[torch.Tensor] = Counter()
        for module in network.modules() if large else ():
            owners.update(module.parameters(recurse=False))
        owners.subtract(layer.weight for layer in large)
        self._layers = [layer for layer in large if not owners[layer.weight]]
        self._parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._edges = [torch.autograd.graph.get_gradient_edge(parameter) for parameter in self._parameters]
        self._uses: Counter[torch.Tensor] = Counter()  # of a weight, which several layers may share
        self._left: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._rate: float | None = None

    def __enter__(self) -> FusedSGDStep:
        for layer in self._layers:
            layer.forward = partial(self._forward, layer)  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        for layer in self._layers:
            del layer.forward

    def _forward(self, layer: torch.nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        from fedrun.training.linear_with_callback import LinearWithCallback

        self._uses[layer.weight] += 1
        descend = partial(self._descend, layer)
        outputs: torch.Tensor = LinearWithCallback.apply(inputs, layer.weight, layer.bias, descend)  # type: ignore[no-untyped-call]
        return outputs

    def _descend(
        self, layer: torch.nn.Linear, inputs: torch.Tensor, outputs: torch.Tensor, needs_gradient: bool
    ) -> torch.Tensor | None:
        """Move a layer's weights, or postpone it.

        Args:
            layer: a large one.
            inputs: X, ``[n, in]``.
            outputs: the gradient G at the outputs, ``[n, out]``.
            needs_gradient: whether the gradient at the inputs is needed.

        Returns:
            The gradient at the inputs, ``[n, in]`` of G's type.
        """
        weight = layer.weight.detach()
        # weights whose old values are still needed, by another pass through them or by a linear update, move later
        rate = self._rate if self._uses[layer.weight] == 1 else None
        if rate is None:
            self._left.append((weight, outputs, inputs))
        if not needs_gradient:
            if rate is not None:
                _move(weight, outputs, inputs, rate)
            return None
        # in bfloat16 a sum over blocks would be rounded after each
        rows = max(1, BLOCK // weight.shape[1]) if outputs.dtype == weight.dtype else len(weight)
        gradient = outputs.new_zeros(len(inputs), weight.shape[1])
        for block, part in zip(torch.split(weight, rows), torch.split(outputs, rows, 1), strict=True):
            gradient.addmm_(part, block.to(outputs.dtype))
            if rate is not None:
                _move(block, part, inputs, rate)
        return gradient

    def step(self, loss: torch.Tensor, rate: float, linear_update: Callable[[], object] | None = None) -> None:
        """θ ← θ − rate · gradient of the scalar loss of one forward pass made since the last step.

        ``linear_update`` changes the parameters by itself, once the gradient is known.
        """
        self._rate = rate if linear_update is None else None
        gradients = torch.autograd.grad(loss, self._edges, allow_unused=True)
        self._uses.clear()
        if linear_update is not None:
            linear_update()
        with torch.no_grad():
            for weight, outputs, inputs in self._left:
                _move(weight, outputs, inputs, rate)
            self._left.clear()
            moving = [
                (parameter, gradient)
                for parameter, gradient in zip(self._parameters, gradients, strict=True)
                if gradient is not None
            ]
            if moving:
                parameters, moves = zip(*moving, strict=True)
                torch._foreach_add_(parameters, moves, alpha=-rate)


def _called_only(network: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules below Sequentials alone. A Sequential only calls its children; any other module's forward pass can
    use their weights in its own way.
    """
    if type(network) is torch.nn.Sequential:
        for child in network.children():
            yield child
            yield from _called_only(child)


def _move(weight: torch.Tensor, outputs: torch.Tensor, inputs: torch.Tensor, rate: float) -> None:
    """W ← W − η Gᵀ X."""
    weight.addmm_(outputs.to(weight.dtype).t(), inputs.to(weight.dtype), alpha=-rate)
