"""Plain local SGD, as in FedAvg (McMahan et al., 2017)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy


@config_class
class SGD(ClientStrategy):
    """Minimise the local loss F_k by SGD from the broadcast model, and send the result."""


@config_class
class HeadSGD(SGD):
    """Plain local SGD of the head; float buffers of the encoder change, too."""

    def frozen(self, layout: Layout, epoch: int) -> torch.Tensor:
        encoder = torch.ones(layout.trainable, dtype=torch.bool)
        encoder[layout.head] = False
        return encoder


@config_class
class LastingMomentumSGD(ClientStrategy):
    """Plain SGD that keeps the optimizer's state between rounds, as in centralized training (strategy=centralized)."""

    keeps_optimizer: ClassVar[bool] = True
