"""Inflated losses and noisy updates (the Byzantine clients of MaxFL: Cho et al., TMLR 2024, arXiv 2205.14840)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.base import Attack


@config_class
class Gaussian(Attack):
    """An attacker adds Gaussian noise to its update and reports a larger loss to gain weight.

    Attributes:
        noise: s ≥ 0, the noise's standard deviation in every parameter: D + N(0, s² I).
        inflation: added to the loss that is reported, ≥ 0.
    """

    noise: Annotated[float, Ge(0)]
    inflation: Annotated[float, Ge(0)]

    def tampered(self, model: torch.Tensor, broadcast: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return model + self.noise * torch.randn(model.shape, generator=generator).to(model)

    def reported(self, loss: torch.Tensor) -> torch.Tensor:
        return loss + self.inflation
