"""Every client for itself: what taking part is measured against."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientInfo, ClientStrategy
from fedrun.strategies.server import CohortUpdate, Round, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors

OWN = "own"
"""The client's own model, in its memory."""


@config_class
class SoloClient(ClientStrategy):
    """A client goes on training its own model, which began as the common initial one; its momentum survives the rounds.

    Nothing is sent. The tests are of the clients' own models: each on its client's test samples, or, where clients
    have none, each on the pooled ones, which takes as many tests as there are clients.
    """

    sends: ClassVar[frozenset[str]] = frozenset()
    remembers_models: ClassVar[frozenset[str]] = frozenset({OWN})
    keeps_momentum: ClassVar[bool] = True
    personal: ClassVar[str | None] = OWN
    communicates: ClassVar[bool] = False

    def start(self, received: Vectors, memory: Vectors, client: ClientInfo) -> torch.Tensor:
        # memory is zero until a client has trained
        return torch.where(memory[OWN].any(-1, keepdim=True), memory[OWN], received[MODEL])

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {}, {OWN: model}


@config_class
class SoloServer(ServerStrategy):
    """The initial model stays the initial model."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        return state, {}
