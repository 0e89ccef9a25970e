"""MoFedSAM: FedSAM's gradient in FedCM's mixture (Qu et al., ICML 2022)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.strategies.client import Gradient
from fedrun.strategies.fedcm import FedCMClient
from fedrun.strategies.fedsam import FedSAM
from fedrun.strategies.vectors import Vectors


@config_class
class MoFedSAM(FedCMClient, FedSAM):
    """Step along α g(y + e) + (1 − α) m, with e of :class:`FedSAM` and m of :class:`FedCMClient`.

    Attributes:
        variant: ``paper``, or ``fedlesam``: as in the repository of FedLESAM, where the step is g(y + e) + (1 − α) m.
    """

    variant: Annotated[Literal["paper", "fedlesam"], Neutral("paper")]

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        if self.variant == "paper":
            return super().direction(gradient, model, constants)
        # g(y + e) + (1 − α) m
        return FedSAM.direction(self, gradient, model, constants) + constants["shift"]
