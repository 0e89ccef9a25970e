"""FedProx's client side (Li et al., MLSys 2020, arXiv 1812.06127)."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors


@config_class
class FedProx(ClientStrategy):
    """Minimise F_k(y) + μ/2 ‖y − x‖² over the parameters, where x is the broadcast model.

    Attributes:
        mu: μ ≥ 0, for the form with the factor 1/2. Published code that leaves the 1/2 out has an effective μ twice
            its setting.
    """

    mu: Annotated[float, Ge(0)]

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        return {"anchor": received[MODEL][..., : client.trainable]}

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        # g(y) + μ (y − x)
        anchor = constants["anchor"]
        return LinearCorrection(-self.mu * anchor, anchor.new_full((1,), self.mu))
