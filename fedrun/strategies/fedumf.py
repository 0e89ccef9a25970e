"""FedUmf: idle clients train, too, and later start from the result (Li, Chen, Yu, Mathematics 2022, 10, 3751)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.strategies.feddc import GRADIENT, FedDCServer
from fedrun.strategies.idle_training import IdleTraining
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL


@config_class
class FedUmf(FedDCServer):
    """The plain mean of the participants' models; a client's start also depends on its idle training.

    Every client trains in every round. g_k is the displacement y_k − θ' of a client's training in a round in which it
    was not selected. Only the displacements of clients that are selected in the next round are computed: a displacement
    lasts for one round, and the next cohort is known. ``cost/client_samples`` and ``cost/params_down`` count all
    clients.

    With FedDC on the clients (tables A1 and A2 of the paper, which does not say how the two combine) idle clients train
    on FedDC's objective but change no drift, and the server corrects by drifts and gradient states as FedDC's does.

    Attributes:
        alpha: α in [0, 1], the share of its idle displacement with which a client starts; 0 is FedAvg with a plain
            mean, and idle clients do not train.
    """

    alpha: Annotated[float, Ge(0), Le(1)]

    needs: ClassVar[frozenset[str]] = frozenset({MODEL})

    @property
    def idle_training(self) -> IdleTraining | None:
        return IdleTraining(self.alpha) if self.alpha else None

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        if GRADIENT in update.mean:
            return super().aggregate(state, update, round)
        # θ ← (1/M) Σ_S y_k
        return ServerState(update.mean[MODEL], state.slots), {}
