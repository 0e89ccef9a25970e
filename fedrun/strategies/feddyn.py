"""FedDyn: dynamic regularisation (Acar et al., ICLR 2021), in the form of the authors' code."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, LinearCorrection
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL, Vectors

DRIFT = "drift"
"""h_k in a client's state; the mean of all N h_k in the server's state."""


@config_class
class FedDynClient(ClientStrategy):
    """Local SGD with gradient g(y) + α_k (y − w + h_k), where h_k sums the client's displacements so far.

    Attributes:
        alpha: α ≥ 0; a client uses α_k = α / ω_k with ω_k = n_k N / Σ n_j. The quadratic part of the term is added like
            weight decay, after gradient clipping, as in the code. With α = 0 clients run plain SGD, but the server
            still adds the mean drift: x ← mean_S y_k + (1/N) Σ of all displacements so far.
    """

    alpha: Annotated[float, Ge(0)]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({DRIFT})

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {DRIFT: layout.trainable}

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        alpha = self.alpha / client.relative_size
        return {"alpha": alpha, "shift": alpha * (client_state[DRIFT] - received[MODEL][..., : client.trainable])}

    def linear_correction(self, constants: Vectors) -> LinearCorrection | None:
        # g(y) + α_k (h_k − w) + α_k y
        return LinearCorrection(constants["shift"], constants["alpha"], decays=True)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        # h_k ← h_k + (y_k − w)
        moved = model[..., : client.trainable] - received[MODEL][..., : client.trainable]
        return {MODEL: model}, {DRIFT: client_state[DRIFT] + moved}

    def acknowledge(self, client_state: Vectors, sent: Vectors, arrived: Vectors, client: ClientInfo) -> Vectors:
        # h_k changes by the displacement that the server received
        lost = (arrived[MODEL] - sent[MODEL])[: client.trainable]
        return {**client_state, DRIFT: client_state[DRIFT] + lost}


@config_class
class FedDynServer(UniformServer):
    """The plain mean of the participants' models, moved by the mean drift of all clients.

    The server needs no client's h_k: their mean moves by the participants' displacements alone.
    """

    maintains: ClassVar[frozenset[str]] = frozenset({DRIFT})

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {DRIFT: model.new_zeros(layout.trainable)})

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # h_k gains y_k − w if k took part;  w ← mean_S y_k + mean_N h_k; buffers are averaged
        trainable = round.layout.trainable
        share = update.count / round.clients
        model = update.mean[MODEL]
        drift = state.slots[DRIFT].add(model[:trainable] - state.model[:trainable], alpha=share)
        model[:trainable] += drift
        return ServerState(model, {**state.slots, DRIFT: drift}), {}
