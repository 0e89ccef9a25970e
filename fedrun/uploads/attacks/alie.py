"""A little is enough (Baruch, Baruch, Goldberg, NeurIPS 2019, arXiv 1902.06156)."""

from __future__ import annotations

from statistics import NormalDist
from typing import Annotated

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.colluding import Colluding


@config_class
class ALIE(Colluding):
    """Attackers send μ − z σ, entry by entry: as far from the honest mean as some honest clients are.

    Attributes:
        deviations: z > 0; None: the largest that still has a majority's support, Φ⁻¹((n − f − s) / (n − f)) with
            s = ⌊n/2 + 1⌋ − f, for n clients of which f attack; not below 0.
    """

    deviations: Annotated[float, Gt(0)] | None

    def forged(self, honest: torch.Tensor, attackers: int) -> torch.Tensor:
        z = largest_deviation(len(honest) + attackers, attackers) if self.deviations is None else self.deviations
        # μ − z σ
        return honest.mean(0) - z * honest.std(0, correction=0)


def largest_deviation(clients: int, attackers: int) -> float:
    """z of n clients of which f attack; 0 if the attackers have the majority."""
    honest = clients - attackers
    share = (honest - (clients // 2 + 1 - attackers)) / honest
    return max(0.0, NormalDist().inv_cdf(share)) if 0 < share < 1 else 0.0
