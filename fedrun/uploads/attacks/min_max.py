"""Min-Max (Shejwalkar, Houmansadr, NDSS 2021)."""

from __future__ import annotations

from typing import Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.uploads.attacks.colluding import Colluding


@config_class
class MinMax(Colluding):
    """Attackers go far from the honest mean, but not further from any honest client than two honest clients are from
    each other.

    Attributes:
        direction: direction of the perturbation p: ``std``: −σ; ``unit``: −μ / ‖μ‖; ``sign``: −sign(μ).
    """

    direction: Literal["std", "unit", "sign"]

    def forged(self, honest: torch.Tensor, attackers: int) -> torch.Tensor:
        mean = honest.mean(0)
        if self.direction == "std":
            p = -honest.std(0, correction=0)
        else:
            p = -mean.sign() if self.direction == "sign" else -mean / mean.norm().clamp_min(1e-30)
        # μ + γ p with the largest γ for which ‖μ + γ p − D_i‖ ≤ max_jk ‖D_j − D_k‖ for all i: a root of
        # ‖p‖² γ² + 2 ⟨p, a_i⟩ γ + ‖a_i‖² − d² = 0 with a_i = μ − D_i (the paper finds it by bisection)
        farthest = max(float((one - honest).norm(dim=1).max()) for one in honest)
        squared, gamma = float(p.double().square().sum()), 0.0
        if squared:
            apart = (mean - honest).double()
            product, constant = apart @ p.double(), apart.square().sum(1) - farthest**2
            roots = ((product.square() - squared * constant).clamp_min(0).sqrt() - product) / squared
            gamma = max(0.0, float(roots.min()))
        return mean + gamma * p
