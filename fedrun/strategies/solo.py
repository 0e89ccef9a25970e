"""Every client for itself: what taking part is measured against."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass

from fedrun.config.config_class import STRICT
from fedrun.strategies.client import ClientHalf, ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, ServerHalf, ServerState
from fedrun.strategies.vectors import MODEL, Vectors

OWN = "own"
"""The client's own model, in its memory."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SoloClient(ClientHalf):
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


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SoloServer(ServerHalf):
    """The initial model stays the initial model."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        return state, {}
