"""FedNova: normalised averaging (Wang et al., NeurIPS 2020, arXiv 2007.07481)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.client import LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.fedprox import FedProx
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.server import CohortUpdate, Round, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors, minus
from fedrun.system.errors import InputError

DIRECTION = "direction"
"""d_k = (x − y_k) / a_k on the parameters; float buffers travel in the same vector as they are."""

NORMALIZER = "normalizer"
"""a_k, one number."""


@config_class
class FedNovaClient(FedProx):
    """Local SGD that sends its displacement per effective step, and how many effective steps it made.

    Attributes:
        mu: μ ≥ 0 of a proximal term μ/2 ‖y − x‖² in the local loss; 0: none.
    """

    sends: ClassVar[frozenset[str]] = frozenset({DIRECTION, NORMALIZER})
    assumes_sgd: ClassVar[bool] = True

    def check(self, local: LocalTraining) -> None:
        if self.mu and local.momentum:
            raise InputError(
                f"strategy.client.mu={self.mu} with local.momentum={local.momentum}: FedNova's number of effective "
                "steps is known for either alone; one of the two must be 0"
            )
        if local.lr * self.mu >= 1:
            raise InputError(f"strategy.client.mu={self.mu}: allowed: below 1 / local.lr = {1 / local.lr:g}")

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        return super().linear_correction(constants) if self.mu else None

    def effective_steps(self, client: ClientInfo) -> torch.Tensor:
        """a_k = ‖a‖₁, the sum of the weights with which a client's gradients enter its displacement, ``[..., 1]``."""
        shrink = client.lr * self.mu
        if 1 - shrink == 1:  # 0, or less than the rounding error of 1
            return client.effective_steps
        # (1 − (1 − η μ)^K) / (η μ)
        return ((1 - (1 - shrink) ** client.steps.double()) / shrink).float()

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        a = self.effective_steps(client)
        direction = minus(received[MODEL], model, client.trainable)
        direction[..., : client.trainable] /= a
        return {DIRECTION: direction, NORMALIZER: a}, {}


@config_class
class FedNovaServer(ServerStrategy):
    """One step of τ_eff effective steps along the mean normalised direction; weights p_k = n_k / Σ_S n_j."""

    needs: ClassVar[frozenset[str]] = frozenset({DIRECTION, NORMALIZER})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # x ← x − τ_eff Σ p_k d_k with τ_eff = Σ p_k a_k; buffers are averaged
        trainable, steps = round.layout.trainable, update.mean[NORMALIZER]
        direction = update.mean[DIRECTION]
        direction[:trainable] *= steps
        model = minus(state.model, direction, trainable)
        return ServerState(model, state.slots), {"effective_steps": steps.item()}
