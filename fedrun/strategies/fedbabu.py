"""FedBABU: share and train the encoder only, under a random head (Oh, Kim, Yun, ICLR 2022, arXiv 2106.06042)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import Averaging, EvaluatedModel
from fedrun.strategies.fedper import FedPer


@config_class
class FedBABU(FedPer):
    """FedPer with a fixed head: all clients keep the initial one.

    The paper's main result evaluates models after each client has tuned all weights: ``evaluation.tuning_epochs=5``.
    """

    reported: ClassVar[tuple[EvaluatedModel, Averaging]] = ("tuned", "clients")

    def frozen(self, layout: Layout, epoch: int) -> torch.Tensor:
        return self.head(layout)
