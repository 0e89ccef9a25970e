"""FedUmf: idle clients train, too, and later start from the result (Li, Chen, Yu, Mathematics 2022, 10, 3751)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.feddc import GRADIENT, FedDCServer
from fedrun.strategies.server import CohortUpdate, IdleTraining, Round, ServerState
from fedrun.strategies.vectors import MODEL, Vectors

IDLE = "idle"
"""g_k in a client's state: the displacement of its parameters by training that was not sent, ``[T]``."""


@dataclass(frozen=True)
class FusedStart(IdleTraining):
    """A client that was idle in the round before starts at θ + α (η_t / η_{t−1}) g_k, the others at θ.

    Attributes:
        alpha: α in (0, 1].
    """

    alpha: float

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {IDLE: layout.trainable}

    def keep(self, start: torch.Tensor, model: torch.Tensor, layout: Layout) -> Vectors:
        # g_k = y_k − θ'
        return {IDLE: model[: layout.trainable] - start[: layout.trainable]}

    def start(self, start: torch.Tensor, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        if client.round == 0:
            return start
        fused = start.clone()
        # θ + α (η_t / η_{t−1}) g_k
        ratio = client.lr / client.local.rate(client.round - 1)
        fused[..., : client.trainable].add_(client_state[IDLE], alpha=self.alpha * ratio)
        return fused


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
        return FusedStart(self.alpha) if self.alpha else None

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        if GRADIENT in update.mean:
            return super().aggregate(state, update, round)
        # θ ← (1/M) Σ_S y_k
        return ServerState(update.mean[MODEL], state.slots), {}
