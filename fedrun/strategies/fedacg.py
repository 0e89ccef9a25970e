"""FedACG: clients start from a lookahead of the global model (Kim, Kim, Han, CVPR 2024, arXiv 2201.03172).

Its clients are FedProx's, near the lookahead that they receive: ``strategy/client=fedprox`` with μ = β.
"""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Lt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Round, ServerState, UniformServer
from fedrun.strategies.vectors import MODEL, Vectors

VELOCITY = "fedacg/velocity"
"""m in the server's state, ``[P]``, zero in the entries of float buffers."""


@config_class
class FedACG(UniformServer):
    """Broadcast z = x + λ m, and move x to the plain mean of the clients' models; buffers are averaged.

    x is evaluated, not z.

    Attributes:
        momentum: λ in [0, 1); 0: the plain mean of FedAvg.
    """

    momentum: Annotated[float, Ge(0), Lt(1)]

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, {VELOCITY: torch.zeros_like(model)})

    def broadcast(self, state: ServerState) -> Vectors:
        # z = x + λ m
        return {MODEL: state.model + self.momentum * state.slots[VELOCITY]}

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        model = update.mean[MODEL]
        # Δ = mean_S (y_k − z);  m ← λ m + Δ;  x ← x + m = mean_S y_k
        velocity = model - state.model
        velocity[round.layout.trainable :] = 0
        return ServerState(model, {VELOCITY: velocity}), {}
