"""FedSA-LoRA: A is shared, B stays with the client (Guo et al., ICLR 2025, arXiv 2410.01463)."""

from __future__ import annotations

from typing import Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.lora import required_adapters


@config_class
class FedSALoRA(ClientStrategy):
    """Plain local SGD of A, B_k and the head; B_k, 0 at first, is not sent.

    Attributes:
        head: ``local``: what is trained besides the adapters stays with the client, too, as in the paper's runs on
            GLUE: the head, and other new layers, such as the dense one before RoBERTa's; ``average``: it is sent.
    """

    head: Literal["local", "average"]

    def private(self, layout: Layout) -> torch.Tensor:
        mask = torch.zeros(layout.size, dtype=torch.bool)
        if self.head == "local":
            mask[: layout.trainable] = True
        for adapter in required_adapters(layout, "strategy/client=fedsalora"):
            mask[adapter.a.start : adapter.a.stop] = False
            mask[adapter.b.start : adapter.b.stop] = True
        return mask
