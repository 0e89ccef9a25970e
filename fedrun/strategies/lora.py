"""The adapters in a model's vector, for the rules for federated low-rank adapters."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.models.adapters import Adapter, adapters_of, add_residuals
from fedrun.models.flat_network import Layout
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import Rows
from fedrun.system.errors import InputError


@config_class
class ResidualServer(FedAvg):
    """Changes W0 by residuals in the model's vector, W0 + s (R + B A), given each client's adapters."""

    rows: ClassVar[Rows] = "parameters"

    def prepare(self, network: torch.nn.Module) -> None:
        add_residuals(network)


def required_adapters(layout: Layout, key: str) -> tuple[Adapter, ...]:
    """The adapters of the model.

    Args:
        layout: of its vector.
        key: the strategy, for the message.

    Raises:
        InputError: it has none, or their A is frozen.
    """
    if adapters := adapters_of(layout):
        return adapters
    if any(".lora_B." in slot.name for slot in layout.slots):
        raise InputError(
            f"{key}: A is frozen and common to all clients (strategy/server=ffalora); allowed: a server strategy that "
            "trains it, such as fedavg or flora"
        )
    raise without_adapters(key)


def without_adapters(key: str) -> InputError:
    """The message for a model without adapters."""
    return InputError(
        f"{key}: the model has no low-rank adapters; allowed: model.lora.rank, such as 8, with model=transformers, "
        "timm, torchvision or custom"
    )
