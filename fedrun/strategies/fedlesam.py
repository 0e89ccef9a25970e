"""FedLESAM: perturb along the last move of the global model (Fan et al., ICML 2024, arXiv 2405.18890)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.fedcm import GLOBAL_GRADIENT
from fedrun.strategies.feddyn import FedDynClient
from fedrun.strategies.fedsam import norm
from fedrun.strategies.scaffold import ScaffoldClient
from fedrun.strategies.vectors import MODEL, Vectors

EARLIER = "earlier"
"""o_k ``[T]``: the global model that the client received when it last took part."""


@config_class
class Perturbed(ClientStrategy):
    """Step along the gradient at y + e with e = ρ (o_k − x) / ‖o_k − x‖, fixed for the round: SAM in one pass.

    e = 0 in a client's first round.

    Attributes:
        rho: ρ ≥ 0; 0: plain SGD.
    """

    rho: Annotated[float, Ge(0)]

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {**super().client_state(layout), EARLIER: layout.trainable}

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        constants = super().constants(received, client_state, client)
        # e = ρ (o_k − x) / ‖o_k − x‖
        back = client_state[EARLIER] - received[MODEL][..., : client.trainable]
        length = norm(back)
        moved = ~client.is_new & (length > 0)
        return {**constants, "perturbation": torch.where(moved, self.rho * back / length.clamp_min(1e-30), 0.0)}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        return gradient(model + constants["perturbation"], 0)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        uploads, state = super().finish(model, received, client_state, constants, client)
        return uploads, {**state, EARLIER: received[MODEL][..., : client.trainable].expand_as(client_state[EARLIER])}


@config_class
class FedLESAM(Perturbed):
    """FedLESAM: plain SGD with the gradient at y + e.

    Attributes:
        variant: of e: ``paper``; or ``released``: as in the authors' code, where all entries of the i-th tensor have
            e = −ρ u_i / Σ_j |u_j|, with u_0, u_1, .. the first entries of the last move of the global model, one for
            each tensor. That move comes from the server: it needs strategy/server=fedcm, whose model is FedLESAM's.
    """

    variant: Annotated[Literal["paper", "released"], Neutral("paper")]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({GLOBAL_GRADIENT} if self.variant == "released" else set())

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {} if self.variant == "released" else super().client_state(layout)

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        if self.variant == "paper":
            return super().constants(received, client_state, client)
        slots = sorted((slot.start, slot.stop) for slot in client.layout.slots if slot.stop <= client.trainable)
        # e_i = −ρ u_i / Σ_j |u_j|; the global gradient is −u but for a factor, which cancels out
        first = received[GLOBAL_GRADIENT][: len(slots)]
        shifts = self.rho * first / first.abs().sum().clamp_min(1e-30)
        sizes = torch.tensor([stop - start for start, stop in slots]).to(shifts.device)
        return {"perturbation": shifts.repeat_interleave(sizes)}

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        if self.variant == "released":
            return {MODEL: model}, {}
        return super().finish(model, received, client_state, constants, client)


@config_class
class FedLESAMScaffold(Perturbed, ScaffoldClient):
    """FedLESAM-S: the gradient at y + e, corrected by SCAFFOLD's control variates."""


@config_class
class FedLESAMDyn(Perturbed, FedDynClient):
    """FedLESAM-D: the gradient at y + e, with FedDyn's dynamic regularisation."""
