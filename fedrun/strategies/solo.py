"""Each client trains alone: the baseline for the benefit of taking part."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, ServerState, ServerStrategy
from fedrun.strategies.sgd import LastingMomentumSGD
from fedrun.strategies.vectors import Vectors


@config_class
class SoloClient(LastingMomentumSGD):
    """A client trains its own model, which started as the common initial one.

    The optimizer's state lasts from round to round. Nothing is sent. The clients' own models are evaluated: each on its
    client's test samples, or, if clients have none, each on the pooled ones, which takes one test per client.
    """

    sends: ClassVar[frozenset[str]] = frozenset()

    def private(self, layout: Layout) -> torch.Tensor:
        return torch.ones(layout.size, dtype=torch.bool)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {}, {}


@config_class
class SoloServer(ServerStrategy):
    """The initial model stays the initial model."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        return state, {}
