"""FedRep: fit the client's own head, then move the shared encoder (Collins et al., ICML 2021, arXiv 2102.07078)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.allowed_values import shown
from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.fedper import FedPer
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError


@config_class
class FedRep(FedPer):
    """FedPer, in which the head trains in the first E_h epochs of a round and the encoder in all later ones.

    ``local.epochs`` is E_h + E_φ, where E_φ ≥ 1 are the encoder's. The float buffers of the encoder, such as
    BatchNorm's running statistics, move in all epochs.

    Attributes:
        head_epochs: E_h ≥ 1.
    """

    head_epochs: Annotated[int, Ge(1)]

    def check(self, local: LocalTraining) -> None:
        if local.epochs is None or local.epochs <= self.head_epochs:
            raise InputError(
                f"local.epochs={shown(local.epochs)}: FedRep trains only the head in the first {self.head_epochs} "
                "(strategy.client.head_epochs); allowed: a larger number"
            )

    def frozen(self, layout: Layout, epoch: int) -> torch.Tensor:
        head = self.head(layout)
        return ~head if epoch < self.head_epochs else head
