"""Inner-product manipulation (Xie, Koyejo, Gupta, UAI 2020, arXiv 1903.03936)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.colluding import Colluding


@config_class
class IPM(Colluding):
    """Attackers send the honest mean in the opposite direction.

    Attributes:
        scale: ε > 0; small values are close to the honest uploads, large ones reverse the mean.
    """

    scale: Annotated[float, Gt(0)]

    def forged(self, honest: torch.Tensor, attackers: int) -> torch.Tensor:
        # −ε μ
        return honest.mean(0).mul_(-self.scale)
