"""FedLESAM: perturb along the last move of the global model (Fan et al., ICML 2024, arXiv 2405.18890)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Gradient, LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.feddyn import FedDynClient, FedDynServer
from fedrun.strategies.fedsam import norm
from fedrun.strategies.scaffold import ScaffoldClient, ScaffoldServer
from fedrun.strategies.server import CohortUpdate, Round, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors

EARLIER = "earlier"
"""o_k ``[T]``: the global model that the client received when it last took part."""

MOVE = "move"
"""u ``[T]``: how the server moved the global model in its last round; zero in the first round."""


@config_class
class FedLESAM(ClientStrategy):
    """SGD along the gradient at y + e, where e is fixed for the round: SAM in one pass. In its first round e = 0.

    Attributes:
        rho: ρ ≥ 0; 0: no perturbation.
        perturbation: ``paper``: e = ρ (o_k − x) / ‖o_k − x‖, with the model o_k that the client received when it last
            took part; or ``released``: as in the authors' code, where all entries of the i-th tensor have
            e = −ρ u_i / Σ_j |u_j|, with u_0, u_1, .. the first entries of the global model's last move u, one for each
            tensor. u comes from the server: see :class:`SendsMove`.
    """

    rho: Annotated[float, Ge(0)]
    perturbation: Annotated[Literal["paper", "released"], Neutral("paper")]

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | (frozenset({MOVE}) if self.perturbation == "released" else frozenset())

    def client_state(self, layout: Layout) -> dict[str, int]:
        known = {EARLIER: layout.trainable} if self.perturbation == "paper" else {}
        return {**super().client_state(layout), **known}

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        constants = super().constants(received, client_state, client)
        if self.perturbation == "released":
            return {**constants, "perturbation": _by_tensor(received[MOVE], client.layout, self.rho)}
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
        if self.perturbation == "released":
            return uploads, state
        return uploads, {**state, EARLIER: received[MODEL][..., : client.trainable].expand_as(client_state[EARLIER])}


def _by_tensor(move: torch.Tensor, layout: Layout, rho: float) -> torch.Tensor:
    """e_i = −ρ u_i / Σ_j |u_j| for every entry of the i-th tensor, ``[T]``; 0 without a move."""
    tensors = list(layout.views(move).values())
    # in the authors' code every tensor lies in C order, kernels too
    first = torch.cat([tensor.flatten() for tensor in tensors])[: len(tensors)]
    shifts = -rho * first / first.abs().sum().clamp_min(1e-30)
    return shifts.repeat_interleave(torch.tensor([tensor.numel() for tensor in tensors]).to(shifts.device))


@config_class
class FedLESAMScaffold(FedLESAM, ScaffoldClient):
    """FedLESAM-S: the gradient at y + e, corrected by SCAFFOLD's control variates.

    Attributes:
        correction: a factor of SCAFFOLD's correction c − c_k in every step; 0.1 (``lamb``) in the authors' code.
    """

    correction: Annotated[float, Ge(0), Neutral(1.0)]

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        # y ← y − η (g(y + e) + factor (c − c_k))
        return LinearCorrection(self.correction * constants["correction"])


@config_class
class FedLESAMDyn(FedLESAM, FedDynClient):
    """FedLESAM-D: the gradient at y + e, with FedDyn's dynamic regularisation."""


class SendsMove(ServerStrategy):
    """Also sends clients the last move u of the global model, for :class:`FedLESAM` as released."""

    @property
    def sends(self) -> frozenset[str]:
        return super().sends | {MOVE}

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        state = super().init(model, layout, clients)
        return ServerState(state.model, {**state.slots, MOVE: model.new_zeros(layout.trainable)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        after, metrics = super().aggregate(state, update, round)  # type: ignore[safe-super]  # of the other base
        # u ← x_new − x
        move = after.model[: round.layout.trainable] - state.model[: round.layout.trainable]
        return ServerState(after.model, {**after.slots, MOVE: move}), metrics


@config_class
class FedLESAMServer(SendsMove, FedAvg):
    """FedAvg that also sends the last move of the global model."""


@config_class
class FedLESAMScaffoldServer(SendsMove, ScaffoldServer):
    """SCAFFOLD's server that also sends the last move of the global model."""


@config_class
class FedLESAMDynServer(SendsMove, FedDynServer):
    """FedDyn's server that also sends the last move of the global model."""
