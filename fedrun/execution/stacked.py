"""Fully connected networks of a group of clients at once: one batched product per layer.

A replacement of :func:`torch.vmap` for the most common kind of small network: forward and backward passes store only
activations, and a step of plain SGD adds each layer's W ← W − η Gᵀ X to all clients' weights in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Drop = Callable[[torch.Tensor, float], torch.Tensor]
"""Drops units of activations ``[C, B, ...]`` with a probability, and scales the others up accordingly."""

ELEMENTWISE = (torch.nn.ReLU, torch.nn.Tanh, torch.nn.Sigmoid, torch.nn.GELU, torch.nn.LeakyReLU, torch.nn.Identity)


@dataclass(frozen=True)
class Passed:
    """The inputs and outputs of one linear layer.

    Attributes:
        layer: its name in the network.
        inputs: X, ``[C, n, in]``; n is B, or more if samples were not flat.
        outputs: ``[C, n, out]``, part of the loss's graph.
    """

    layer: str
    inputs: torch.Tensor
    outputs: torch.Tensor


class StackedPerceptron:
    """A chain of flattening, linear, elementwise and dropout layers, for C models at once.

    Args:
        chain: the layers by their names in the network.
    """

    def __init__(self, chain: Mapping[str, torch.nn.Module]) -> None:
        self._chain = chain

    @classmethod
    def of(cls, network: torch.nn.Module) -> StackedPerceptron | None:
        """The network in this form; None if it has other layers."""
        parameters = list(network.parameters())
        shared = len(list(network.named_parameters(remove_duplicate=False))) > len(parameters)
        if shared or not all(parameter.requires_grad for parameter in parameters):
            return None
        if any(parameter._backward_hooks for parameter in parameters):
            return None
        chain: dict[str, torch.nn.Module] = {}
        for name, module in network.named_modules(remove_duplicate=False):
            if module._forward_pre_hooks or module._forward_hooks:  # such as those of weight normalisation
                return None
            if module._backward_pre_hooks or module._backward_hooks:
                return None
            if "forward" in vars(module):  # replaced for this layer alone
                return None
            if type(module) is torch.nn.Sequential:
                continue
            flat = type(module) is torch.nn.Flatten and (module.start_dim, module.end_dim) == (1, -1)
            if not flat and type(module) not in (torch.nn.Linear, torch.nn.Dropout, *ELEMENTWISE):
                return None
            if type(module) is torch.nn.LeakyReLU and module.inplace:  # backward needs the outputs before it
                return None
            chain[name] = module
        return cls(chain)

    def forward(
        self, tensors: Mapping[str, torch.Tensor], x: torch.Tensor, drop: Drop
    ) -> tuple[torch.Tensor, list[Passed]]:
        """Logits ``[C, B, classes]`` of samples ``[C, B, ...]`` under parameters ``[C, ...]``, and each linear layer's
        inputs and outputs.

        The graph begins at the first linear layer's outputs; the parameters are not part of it.
        """
        passed: list[Passed] = []
        for name, layer in self._chain.items():
            if type(layer) is torch.nn.Flatten:
                x = x.flatten(2)
            elif type(layer) is torch.nn.Linear:
                rows, weight = x.flatten(1, -2), tensors[f"{name}.weight"].detach().mT
                if (bias := tensors.get(f"{name}.bias")) is None:
                    outputs = torch.bmm(rows, weight)
                else:
                    outputs = torch.baddbmm(bias.detach()[:, None], rows, weight)
                if not passed:
                    outputs.requires_grad_()
                passed.append(Passed(name, rows.detach(), outputs))
                x = outputs.view(*x.shape[:-1], -1)
            elif isinstance(layer, torch.nn.Dropout):
                x = drop(x, layer.p) if layer.p else x
            elif isinstance(layer, torch.nn.ReLU):
                x = torch.relu(x)  # never in place: the backward pass needs the outputs before it
            else:
                x = layer(x)
        return x, passed

    def gradient(self, loss: torch.Tensor, passed: list[Passed], into: Mapping[str, torch.Tensor]) -> None:
        """Store the gradient of a scalar loss, model by model, in tensors ``[C, ...]``."""
        for layer, outputs in zip(passed, self._at_outputs(loss, passed), strict=True):
            into[f"{layer.layer}.weight"].baddbmm_(outputs.mT, layer.inputs, beta=0)
            if (bias := into.get(f"{layer.layer}.bias")) is not None:
                bias.copy_(outputs.sum(1))

    def descend(
        self,
        loss: torch.Tensor,
        passed: list[Passed],
        tensors: Mapping[str, torch.Tensor],
        rate: float,
        linear_update: Callable[[], object] | None = None,
    ) -> None:
        """Move parameters ``[C, ...]`` in place by −rate times the gradient of a scalar loss.

        ``linear_update`` changes the parameters by itself, once the gradient is known.
        """
        gradients = self._at_outputs(loss, passed)
        if linear_update is not None:
            linear_update()
        for layer, outputs in zip(passed, gradients, strict=True):
            tensors[f"{layer.layer}.weight"].baddbmm_(outputs.mT, layer.inputs, alpha=-rate)
            if (bias := tensors.get(f"{layer.layer}.bias")) is not None:
                bias.add_(outputs.sum(1), alpha=-rate)

    def _at_outputs(self, loss: torch.Tensor, passed: list[Passed]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(loss, [layer.outputs for layer in passed])
