"""q-FedAvg, the solver of q-fair federated learning (Li et al., ICLR 2020, arXiv 1905.10497)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, Senders, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors, minus

STEP = "step"
"""Δw_k = L (w − y_k) on the parameters; float buffers travel in the same vector as they are."""

CURVATURE = "curvature"
"""h_k / F_k^q, one number."""

POWER = "power"
"""F_k^q, one number, float64."""

LOSS_FLOOR = 1e-10
"""Added to F_k before the power, as in the authors' code."""


@config_class
class QFFLClient(ClientStrategy):
    """Local SGD whose displacement is weighted by a power of the client's loss at the broadcast model.

    The paper's clients send Δ_k = F_k^q Δw_k and h_k. F_k^q exceeds the range of float32 for large q. So clients send
    Δw_k, h_k / F_k^q and F_k^q, and F_k^q is the weight in the server's means.

    Attributes:
        q: q ≥ 0 of the objective Σ F_k^(q+1) / (q + 1); a larger q gives clients with high losses more weight.
    """

    q: Annotated[float, Ge(0)]

    sends: ClassVar[frozenset[str]] = frozenset({STEP, CURVATURE, POWER})
    wants: ClassVar[frozenset[Measurement]] = frozenset({"initial_loss"})
    assumes_sgd: ClassVar[bool] = True

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        # Δw_k = L (w − y_k);  h_k / F_k^q = q ‖Δw_k‖² / F_k + L, with L = 1/η
        assert client.initial_loss is not None
        loss, lipschitz = client.initial_loss + LOSS_FLOOR, 1 / client.lr
        step = minus(received[MODEL], model, client.trainable)
        moved = step[..., : client.trainable]
        moved *= lipschitz
        squared = torch.linalg.vector_norm(moved, dim=-1, keepdim=True).square()
        return {STEP: step, CURVATURE: self.q * squared / loss + lipschitz, POWER: loss**self.q}, {}


@config_class
class QFFLServer(ServerStrategy):
    """w ← w − Σ Δ_k / Σ h_k; for q = 0 that is the plain mean of the clients' models.

    Float buffers are averaged with the same weights F_k^q.
    """

    needs: ClassVar[frozenset[str]] = frozenset({STEP, CURVATURE, POWER})

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return senders.reports[POWER]

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # Σ Δ_k / Σ h_k = Σ F_k^q Δw_k / Σ F_k^q (h_k / F_k^q)
        trainable, step = round.layout.trainable, update.mean[STEP]
        step[:trainable] /= update.mean[CURVATURE]
        return ServerState(minus(state.model, step, trainable), state.slots), {}
