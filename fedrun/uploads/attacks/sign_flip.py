"""Updates in the opposite direction."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.base import Attack


@config_class
class SignFlip(Attack):
    """An attacker sends x − s (y − x) instead of its model y, where x is the broadcast one.

    Attributes:
        scale: s > 0; 1 cancels an honest client with the same update and weight.
    """

    scale: Annotated[float, Gt(0)]

    def tampered(self, model: torch.Tensor, broadcast: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return broadcast - self.scale * (model - broadcast)
