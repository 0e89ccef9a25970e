"""FedDC: local drift decoupling and correction (Gao et al., CVPR 2022, arXiv 2203.11751), as in the authors' code."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.feddyn import DRIFT, FedDynServer
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL, Vectors

GRADIENT = "gradient"
"""The gradient state: G in the broadcast, ΔG_k in an upload, g_k in a client's state."""

CORRECTIONS = "drift and gradient state"
"""The client states that the server must maintain."""


@config_class
class FedDCClient(ClientStrategy):
    """Local SGD with gradient g(y) + α_k (y − (w − h_k)) − g_k + G/ω_k.

    Training begins at w, except with FedUmf's server strategy, where clients that were idle start ahead of w. The drift
    uses the whole displacement y_k − w, because the server corrects by the drift. The gradient state estimates a
    gradient from the round's K steps, so s uses their displacement y_k − start. FedUmf's paper does not specify this;
    by another reading s uses y_k − w, too. Both are equal for FedUmf's α = 0, and if all clients take part. With
    momentum, which the authors' code does not have, the displacement is divided by the number of effective steps, so
    that it stays a gradient.

    Attributes:
        alpha: α ≥ 0; a client uses α_k = α / ω_k with ω_k = n_k N / Σ n_j.
    """

    alpha: Annotated[float, Ge(0)]

    needs: ClassVar[frozenset[str]] = frozenset({GRADIENT, CORRECTIONS})
    sends: ClassVar[frozenset[str]] = frozenset({MODEL, GRADIENT})
    assumes_sgd: ClassVar[bool] = True

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {DRIFT: layout.trainable, GRADIENT: layout.trainable}

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        alpha = self.alpha / client.relative_size
        # α_k (h_k − w) − g_k + G/ω_k
        shift = alpha * (client_state[DRIFT] - received[MODEL][..., : client.trainable])
        shift = shift - client_state[GRADIENT] + received[GRADIENT] / client.relative_size
        return {"alpha": alpha, "shift": shift}

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        return LinearCorrection(constants["shift"], constants["alpha"])

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.start is not None
        end, w, start = (each[..., : client.trainable] for each in (model, received[MODEL], client.start))
        # h_k ← h_k + y_k − w
        drift = client_state[DRIFT] + (end - w)
        # g_k ← g_k + s with s = −G/ω_k − D/(‖ā‖₁ η_0), where D is the displacement by this round's steps, and ‖ā‖₁
        # (K̄ without momentum) and η_0 are the same for every client and round
        moved = end - start
        change = -moved / (client.mean_effective_steps * client.local.lr) - received[GRADIENT] / client.relative_size
        state = {DRIFT: drift, GRADIENT: client_state[GRADIENT] + change}
        return {MODEL: model, GRADIENT: client.relative_size * change}, state

    def acknowledge(self, client_state: Vectors, sent: Vectors, arrived: Vectors, client: ClientInfo) -> Vectors:
        # h_k and g_k change by what the server received: y_k − w, and ΔG_k / ω_k
        drift = client_state[DRIFT] + (arrived[MODEL] - sent[MODEL])[: client.trainable]
        gradient = client_state[GRADIENT] + (arrived[GRADIENT] - sent[GRADIENT]) / client.relative_size
        return {**client_state, DRIFT: drift, GRADIENT: gradient}


@config_class
class FedDCServer(FedDynServer):
    """The plain mean of the participants' models, moved by the mean drift of all clients; G follows the clients."""

    needs: ClassVar[frozenset[str]] = frozenset({MODEL, GRADIENT})
    sends: ClassVar[frozenset[str]] = frozenset({MODEL, GRADIENT})
    maintains: ClassVar[frozenset[str]] = frozenset({CORRECTIONS})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {name: model.new_zeros(layout.trainable) for name in (DRIFT, GRADIENT)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # w ← mean_S y_k + mean_N h_k;  G ← G + (1/N) Σ_S ΔG_k
        after, metrics = super().aggregate(state, update, round)
        share = update.count / round.clients
        gradient = state.slots[GRADIENT].add(update.mean[GRADIENT], alpha=share)
        return ServerState(after.model, {**after.slots, GRADIENT: gradient}), metrics
