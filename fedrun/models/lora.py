"""Low-rank adapters in the linear layers of any network (LoRA, Hu et al., 2022), by Hugging Face's peft."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.system.errors import InputError, one_line

if TYPE_CHECKING:
    import torch

INSTALL = "pip install 'fedrun[lora]'"


@config_class
class LoRA:
    """W = W0 + (alpha / rank) B A in place of each targeted weight W0 ``[out, in]``, which is frozen.

    A ``[rank, in]`` starts from U(−1/√in, 1/√in) and B ``[out, rank]`` from 0, so that the network starts as it is.
    The rest of the network is frozen, too, except for its head.

    Attributes:
        rank: of the adapters; None: no adapters; the other keys have no effect.
        alpha: the adapters are scaled by alpha / rank.
        targets: names of linear layers, or endings of their names, such as ``query``; empty: peft's choice for the
            architecture.
        dropout: probability of dropping an entry of A's input in training.
    """

    rank: Annotated[int | None, Ge(1), Neutral(None)]
    alpha: Annotated[float, Gt(0), Neutral(16.0)]
    targets: Annotated[tuple[str, ...], Neutral(())]
    dropout: Annotated[float, Ge(0), Lt(1), Neutral(0.0)]

    def insert(self, network: torch.nn.Module) -> None:
        """Replace the targeted layers by layers with adapters, and freeze all other parameters, in place.

        Raises:
            InputError: there is no such layer, it is not linear, or peft is not installed.
        """
        try:
            from peft import LoraConfig, inject_adapter_in_model
            from peft.tuners.lora import LoraLayer
        except ImportError:
            raise InputError(f"model.lora.rank={self.rank}: peft is not installed; {INSTALL}") from None
        settings = LoraConfig(
            r=self.rank or 0,
            lora_alpha=self.alpha,
            target_modules=list(self.targets) or None,
            lora_dropout=self.dropout,
        )
        try:
            inject_adapter_in_model(settings, network)
        except ValueError as error:
            raise InputError(
                f"model.lora.targets=[{','.join(self.targets)}]: {one_line(str(error), 200)}; allowed: names of linear "
                f"layers, or how they end, such as {_linear_layers(network)}"
            ) from None
        for name, layer in network.named_modules():
            if isinstance(layer, LoraLayer) and not (len(layer.lora_A) and layer.lora_A["default"].weight.ndim == 2):
                raise InputError(
                    f"model.lora.targets=[{','.join(self.targets)}]: {name} is a "
                    f"{type(layer.base_layer).__name__}; allowed: linear layers, such as {_linear_layers(network)}"
                )


def _linear_layers(network: torch.nn.Module) -> str:
    """The names of some of a network's linear layers."""
    import torch

    names = [name for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear) and name]
    return ", ".join(names[:4]) or "none, as it has none"
