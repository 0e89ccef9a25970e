"""The low-rank adapters of a network in its vector, and the residuals that a server adds to the weights below them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedrun.models.flat_network import RESIDUAL, Layout, Slot


@dataclass(frozen=True)
class Adapter:
    """The matrices of one adapted layer in a model's vector. s, the layer's scale, is a factor of all of them.

    Attributes:
        a: A, ``[rank, in]``.
        b: B, ``[out, rank]``.
        residual: R, ``[out, in]``; None: no residual.
    """

    a: Slot
    b: Slot
    residual: Slot | None

    def product(self, vector: torch.Tensor) -> torch.Tensor:
        """B A, ``[..., out, in]``, in a vector ``[..., P]`` or ``[..., T]``."""
        return self.b.view(vector) @ self.a.view(vector)


def adapters_of(layout: Layout) -> tuple[Adapter, ...]:
    """The adapters whose two matrices are both trained."""
    slots = {slot.name: slot for slot in layout.slots}
    return tuple(
        Adapter(
            a=slot,
            b=slots[name.replace(".lora_A.", ".lora_B.")],
            residual=slots.get(f"{name.partition('.lora_A.')[0]}.{RESIDUAL}"),
        )
        for name, slot in slots.items()
        if ".lora_A." in name
    )


def adapted_layers(network: torch.nn.Module) -> dict[str, Any]:
    """The layers with adapters, peft's or a user's own, by name."""
    return {name: layer for name, layer in network.named_modules() if hasattr(layer, "lora_A")}


def add_residuals(network: torch.nn.Module) -> None:
    """Give each of peft's layers a buffer R, zero at first, so that it computes with W0 + s (R + B A), in place."""
    for layer in adapted_layers(network).values():
        if not hasattr(layer.lora_A, "default"):
            continue  # not peft's: a user's layer with a matrix of this name
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        layer.register_buffer(RESIDUAL, a.new_zeros(len(b), a.shape[1], requires_grad=False))
        layer.register_forward_hook(_with_residual)


def _with_residual(layer: Any, inputs: tuple[torch.Tensor, ...], outputs: torch.Tensor) -> torch.Tensor:
    scale: float = layer.scaling["default"]
    return outputs + torch.nn.functional.linear(inputs[0], layer.get_buffer(RESIDUAL)) * scale


def merged(network: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A network's tensors by name, with W0 + s R instead of each W0 and R: exactly the tensors of a network without
    residuals.
    """
    result = dict(tensors)
    for name, layer in adapted_layers(network).items():
        if (residual := result.pop(f"{name}.{RESIDUAL}", None)) is not None:
            scaled = residual * layer.scaling["default"]
            weight = f"{name}.base_layer.weight"
            # GPT-2's Conv1D has its weight [in, out]
            result[weight] = result[weight] + (scaled.T if layer.fan_in_fan_out else scaled)
    return result
