"""FFA-LoRA: A stays at its first random value, B is trained (Sun et al., ICLR 2024, arXiv 2403.12313)."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.models.lora_layout import adapted_layers
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.lora import without_adapters


@config_class
class FFALoRA(FedAvg):
    """The weighted mean of all B_k, with one frozen A_0 for all: exact, since Σ p_k B_k A_0 = (Σ p_k B_k) A_0."""

    def prepare(self, network: torch.nn.Module) -> None:
        layers = adapted_layers(network)
        if not layers:
            raise without_adapters("strategy/server=ffalora")
        for layer in layers.values():
            layer.lora_A.requires_grad_(False)
