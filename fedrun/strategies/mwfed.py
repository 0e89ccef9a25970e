"""MW-Fed: multiplicative weights of clients whose requirement is not met (Blum, Haghtalab, Phillips, Shao, ICML 2021).

The paper's constants and MaxFL's use of it as a baseline are not public; this implementation follows their
descriptions: weights set a client's share of the mean and of the round's work, and a loss above the threshold raises
the weight.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, Senders, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors

EXCESS = "excess"
"""F_k(w) − ρ_k at the broadcast model, one number."""

WEIGHTS = "weights"
"""ω_k of every client in the server's state, float64 ``[N]``."""


LEAST_WEIGHT = 1e-100
"""A client's least share of all weights. It is above 0, so that every cohort has positive weights."""


@config_class
class MWFedClient(ClientStrategy):
    """Plain local SGD; the client also reports by how much its loss at the broadcast model exceeds its threshold."""

    sends: ClassVar[frozenset[str]] = frozenset({MODEL, EXCESS})
    wants: ClassVar[frozenset[Measurement]] = frozenset({"initial_loss", "threshold"})

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.initial_loss is not None
        assert client.threshold is not None
        return {MODEL: model, EXCESS: client.initial_loss - client.threshold}, {}


@config_class
class MWFedServer(ServerStrategy):
    """The mean of the clients' models with weights ω_k, which also divide the round's local steps.

    The steps to divide are those that the cohort's clients would make in FedAvg, Σ τ_k.

    Attributes:
        gamma: γ > 0, how fast weights grow.
        growth: ``threshold``: ω_k ← ω_k (1 + γ) if F_k(w) ≥ ρ_k; ``exponential``: ω_k ← ω_k exp(γ (F_k(w) − ρ_k)).
    """

    gamma: Annotated[float, Gt(0)]
    growth: Literal["threshold", "exponential"]

    needs: ClassVar[frozenset[str]] = frozenset({MODEL, EXCESS})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {WEIGHTS: torch.ones(clients, dtype=torch.float64)})

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor, round: Round) -> torch.Tensor:
        # τ_k = max(1, round(Σ τ p_k)): the round's total work is FedAvg's
        share = state.slots[WEIGHTS].cpu()[cohort]
        return (usual.sum() * share / share.sum()).round().clamp_min(1).to(torch.int64)

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return state.slots[WEIGHTS].cpu()[senders.clients]

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        excess = update.reports[EXCESS]
        # ω_k ← ω_k (1 + γ) if F_k(w) ≥ ρ_k, or ω_k exp(γ (F_k(w) − ρ_k))
        growth = math.log1p(self.gamma) * (excess >= 0).double() if self.growth == "threshold" else self.gamma * excess
        exponents = state.slots[WEIGHTS].log()  # where no growth can overflow
        exponents[update.clients] += growth.to(exponents)
        # ω ← ω N / Σ ω
        weights = round.clients * exponents.softmax(0).clamp_min(LEAST_WEIGHT)
        metrics = {"largest_weight": weights.max().item()}
        return ServerState(update.mean[MODEL], {WEIGHTS: weights}), metrics
