"""Low-rank adapters in the linear layers of any network (LoRA, Hu et al., 2022), by Hugging Face's peft."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import NameOrNumber, config_class
from fedrun.config.identity import Neutral
from fedrun.config.marks import NoEffect
from fedrun.system.errors import InputError, one_line
from fedrun.system.extras import require_package

if TYPE_CHECKING:
    import torch


@config_class
class LoRA:
    """W = W0 + (alpha / rank) B A in place of each targeted weight W0 ``[out, in]``, which is frozen.

    A ``[rank, in]`` starts from U(−1/√in, 1/√in) and B ``[out, rank]`` from 0, so that the network starts as it is.
    The rest of the network is frozen, too, except for its head.

    Attributes:
        rank: rank of the adapters; None: no adapters; the other keys have no effect.
        alpha: the adapters are scaled by alpha / rank.
        targets: names of linear layers, or endings of their names, such as ``query``; empty: peft's choice for the
            architecture.
        dropout: probability of dropping an entry of A's input in training.
    """

    rank: Annotated[int | None, Ge(1), Neutral(None)]
    alpha: Annotated[float, Gt(0), Neutral(16.0), NoEffect("rank", (None,))]
    targets: Annotated[tuple[NameOrNumber, ...], Neutral(()), NoEffect("rank", (None,))]
    dropout: Annotated[float, Ge(0), Lt(1), Neutral(0.0), NoEffect("rank", (None,))]

    def insert(self, network: torch.nn.Module) -> None:
        """Replace the targeted layers by layers with adapters, and freeze all other parameters, in place.

        Raises:
            InputError: there is no such layer, it is not linear, or peft is not installed.
        """
        require_package("peft", "lora", f"model.lora.rank={self.rank}")
        import torch
        from peft import LoraConfig, inject_adapter_in_model

        names = [name for name, layer in network.named_modules() if _takes_adapters(layer) and name]
        allowed = f"linear layers, or how their names end, such as {', '.join(names[:4]) or 'none, as there is none'}"

        def rejected(why: str) -> InputError:
            return InputError(f"model.lora.targets=[{','.join(self.targets)}]: {why}; allowed: {allowed}")

        for target in self.targets:
            layers = {name: layer for name, layer in network.named_modules() if f".{name}".endswith(f".{target}")}
            if not layers:
                raise rejected(f"{target} is not found")
            for name, layer in layers.items():
                if isinstance(layer, torch.nn.Identity):
                    raise rejected(f"{name} is the head, which is trained without adapters, or an identity")
                if not _takes_adapters(layer):
                    raise rejected(f"{name} is a {type(layer).__name__}")
        settings = LoraConfig(
            r=self.rank or 0,
            lora_alpha=self.alpha,
            target_modules=list(self.targets) or None,
            lora_dropout=self.dropout,
        )
        try:
            with warnings.catch_warnings():
                # of GPT-2's Conv1D, for which peft sets it right
                warnings.filterwarnings("ignore", "fan_in_fan_out is set to False", UserWarning)
                inject_adapter_in_model(settings, network)
        except ValueError as error:
            if not self.targets:
                raise rejected("peft has no choice for this architecture") from None
            raise rejected(one_line(str(error), 200)) from None


def _takes_adapters(layer: torch.nn.Module) -> bool:
    """Whether a layer is linear and computes its own product.

    ``torch.nn.MultiheadAttention`` reads the weight of its ``out_proj`` and would ignore adapters there.
    """
    import torch

    from fedrun.models.multiply_adds import is_conv1d

    within_attention = isinstance(layer, torch.nn.modules.linear.NonDynamicallyQuantizableLinear)
    return is_conv1d(layer) or (isinstance(layer, torch.nn.Linear) and not within_attention)
