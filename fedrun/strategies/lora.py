"""What the rules for federated low-rank adapters have in common: the adapters in a model's vector."""

from __future__ import annotations

from fedrun.models.adapters import Adapter, adapters_of
from fedrun.models.flat_network import Layout
from fedrun.system.errors import InputError


def required_adapters(layout: Layout, key: str) -> tuple[Adapter, ...]:
    """The adapters of the model.

    Args:
        layout: of its vector.
        key: the strategy, for the message.

    Raises:
        InputError: it has none.
    """
    if adapters := adapters_of(layout):
        return adapters
    raise without_adapters(key)


def without_adapters(key: str) -> InputError:
    """The message for a model without adapters."""
    return InputError(
        f"{key}: the model has no low-rank adapters; allowed: model.lora.rank, such as 8, with model=transformers, "
        "timm, torchvision or custom"
    )
