"""FedDC: local drift decoupling and correction (Gao et al., CVPR 2022, arXiv 2203.11751), as in the authors' code."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientInfo, ClientStrategy, LinearCorrection
from fedrun.strategies.feddyn import DRIFT, FedDynServer
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL, Vectors

GRADIENT = "gradient"
"""The gradient state: G on its way down, ΔG_k on its way up, g_k in a client's memory."""

CORRECTIONS = "drift and gradient state"
"""What the server must follow of the clients' memories for FedDC's client half to go right."""


@config_class
class FedDCClient(ClientStrategy):
    """Local SGD with gradient g(y) + α_k (y − (w − h_k)) − g_k + G/ω_k.

    Attributes:
        alpha: α ≥ 0; a client uses α_k = α / ω_k with ω_k = n_k N / Σ n_j.
    """

    alpha: Annotated[float, Ge(0)]

    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT})
    sends: ClassVar[frozenset[str]] = frozenset({MODEL, GRADIENT})
    remembers: ClassVar[frozenset[str]] = frozenset({DRIFT, GRADIENT})
    relies_on: ClassVar[frozenset[str]] = frozenset({CORRECTIONS})

    def constants(self, received: Vectors, memory: Vectors, client: ClientInfo) -> Vectors:
        alpha = self.alpha / client.share
        shift = memory[DRIFT] - received[MODEL][..., : client.trainable]
        shift.mul_(alpha).sub_(memory[GRADIENT]).addcdiv_(received[GRADIENT], client.share)
        return {"alpha": alpha, "shift": shift}

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        return LinearCorrection(constants["shift"], constants["alpha"])

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        # s = g_k − G/ω_k − D/(K̄ η_0), with K̄ and η_0 the same for every client and round; D in the shift's place
        moved = torch.sub(
            model[..., : client.trainable], received[MODEL][..., : client.trainable], out=constants["shift"]
        )
        change = moved / -(client.mean_steps * client.initial_lr)
        change.addcdiv_(received[GRADIENT], client.share, value=-1)
        kept = {DRIFT: moved.add_(memory[DRIFT]), GRADIENT: memory[GRADIENT] + change}
        return {MODEL: model, GRADIENT: change.mul_(client.share)}, kept


@config_class
class FedDCServer(FedDynServer):
    """The plain mean of the participants' models, moved by the mean drift of all clients; G follows the clients."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({MODEL, GRADIENT})

    @property
    def broadcasts(self) -> frozenset[str]:
        return frozenset({GRADIENT})

    @property
    def maintains(self) -> frozenset[str]:
        return frozenset({CORRECTIONS})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {name: model.new_zeros(layout.trainable) for name in (DRIFT, GRADIENT)})

    def broadcast(self, state: ServerState) -> Vectors:
        return {MODEL: state.model, GRADIENT: state.slots[GRADIENT]}

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # w ← mean_S y_k + mean_N h_k;  G ← G + (1/N) Σ_S ΔG_k
        after, metrics = super().aggregate(state, update, round)
        share = len(update.clients) / round.clients
        gradient = state.slots[GRADIENT].add(update.mean[GRADIENT], alpha=share)
        return ServerState(after.model, {**after.slots, GRADIENT: gradient}), metrics
