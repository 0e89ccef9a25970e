"""FedPer: a shared encoder and a private head per client (Arivazhagan et al., 2019, arXiv 1912.00818)."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy


@config_class
class FedPer(ClientStrategy):
    """Plain local SGD of the whole network; only the encoder is sent, the head stays with the client.

    A client's head starts as the common initial one. Clients are evaluated by the global encoder with their own heads.
    """

    def private(self, layout: Layout) -> torch.Tensor:
        mask = torch.zeros(layout.size, dtype=torch.bool)
        mask[layout.head] = True
        return mask

    def head(self, layout: Layout) -> torch.Tensor:
        """Which parameters are the head's, bool ``[T]``."""
        return self.private(layout)[: layout.trainable]
