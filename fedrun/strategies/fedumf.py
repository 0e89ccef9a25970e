"""FedUmf: clients that were idle fuse what they trained meanwhile (Li, Chen, Yu, Mathematics 2022, 10, 3751)."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.strategies.feddc import GRADIENT, FedDCServer
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL


@config_class
class FedUmf(FedDCServer):
    """The plain mean of the participants' models; those that were idle in the round before start ahead.

    Every client trains in every round. A participant that was not selected in the round before starts at
    θ + α (η_t / η_{t−1}) g_k, where g_k is the displacement y_k − θ' of its training then; the others start at θ. Only
    those are computed that will be selected next: a displacement lasts for one round, and who is selected is known.
    ``cost/client_samples`` and ``cost/params_down`` count all clients.

    With FedDC on the clients (tables A1 and A2 of the paper, which does not say how the two combine) the idle train on
    FedDC's objective but change no drift, and the server corrects by drifts and gradient states as FedDC's does.

    Attributes:
        alpha: α in [0, 1], how much of its idle displacement a client starts with; 0 is FedAvg with a plain mean, where
            the idle do nothing.
    """

    alpha: Annotated[float, Ge(0), Le(1)]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({MODEL})

    @property
    def fusion(self) -> float | None:
        return self.alpha or None

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        if GRADIENT in update.mean:
            return super().aggregate(state, update, round)
        # θ ← (1/M) Σ_S y_k
        return ServerState(update.mean[MODEL], state.slots), {}
