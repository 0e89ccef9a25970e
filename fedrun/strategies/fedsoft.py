"""FedSoft's client side (Ruan, Joe-Wong, AAAI 2022, arXiv 2112.06053)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import CENTRES, Vectors


@config_class
class FedSoftClient(ClientStrategy):
    """Minimise F_k(y) + λ/2 Σ_s u_ks ‖y − c_s‖² over the parameters, where c_s are all the models.

    Training starts at the model with the largest weight, as in FedConcat's script. In the original, clients continue
    from their own last model.

    Attributes:
        strength: λ ≥ 0. In FedConcat's script the term has no gradient, which is λ = 0.
    """

    strength: Annotated[float, Ge(0)]

    needs: ClassVar[frozenset[str]] = frozenset({CENTRES})

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        mixture = client.mixture
        if mixture is None:  # one model: its share is 1
            mixture = torch.ones_like(client.samples)
        centres = received[CENTRES][:, : client.trainable]
        return {"shift": -self.strength * mixture @ centres, "total": self.strength * mixture.sum(-1, keepdim=True)}

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        # g(y) + λ (Σ_s u_s) y − λ Σ_s u_s c_s
        return LinearCorrection(constants["shift"], constants["total"])
