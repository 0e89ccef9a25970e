"""The base of FedAwS and TurboSVM-FL: another server strategy aggregates, then the class embeddings are refined."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.adam import Adam
from fedrun.strategies.idle_training import IdleTraining
from fedrun.strategies.server import (
    CohortUpdate,
    Requirement,
    Round,
    Rows,
    Senders,
    ServerState,
    ServerStrategy,
)
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Refined:
    """The refined class embeddings.

    Attributes:
        embeddings: ``[C, d]``, assigned to the logit layer.
        gradient: ``[C, d]``, of a loss at these embeddings, for a step of Adam; None for no step.
        metrics: to be logged.
    """

    embeddings: torch.Tensor
    gradient: torch.Tensor | None
    metrics: dict[str, float]


@config_class
class HeadRefinement(ServerStrategy):
    """Aggregates with ``base``, then changes the class embeddings (the rows of the logit layer) by :meth:`refine`.

    Attributes:
        base: aggregates the whole model first, and the encoder stays as aggregated: FedAvg or a server optimizer.
        lr: η_g > 0, Adam's learning rate on the logit layer.
        adam_eps: ε > 0 of that Adam. The published code uses 1e-5, torch's default is 1e-8.
        bias: ``coordinate``: a class's bias is the last coordinate of its embedding (published code); ``separate``: the
            embedding is the weight row alone and the bias stays as aggregated by the base.
    """

    moments: ClassVar[str]
    """The prefix of the names of Adam's state."""

    base: ServerStrategy
    lr: Annotated[float, Gt(0)]
    adam_eps: Annotated[float, Gt(0)]
    bias: Literal["coordinate", "separate"]

    @abstractmethod
    def refine(self, embeddings: torch.Tensor, update: CohortUpdate, round: Round) -> Refined:
        """Change the class embeddings ``[C, d]`` (d + 1 with the bias as a coordinate) that the base has aggregated."""

    @property
    def needs(self) -> frozenset[str]:
        return self.base.needs

    @property
    def sends(self) -> frozenset[str]:
        return self.base.sends

    @property
    def maintains(self) -> frozenset[str]:
        return self.base.maintains

    @property
    def rows(self) -> Rows:
        return self.base.rows

    @property
    def idle_training(self) -> IdleTraining | None:
        return self.base.idle_training

    @property
    def wants(self) -> frozenset[Requirement]:
        return self.base.wants | {"head"}

    @property
    def least_uploads(self) -> int:
        return self.base.least_uploads

    @property
    def sends_own_models(self) -> bool:
        return self.base.sends_own_models

    @property
    def refinable(self) -> bool:
        return self.base.refinable

    @property
    def with_bias(self) -> bool:
        """Whether embeddings hold the bias as their last coordinate."""
        return self.bias == "coordinate"

    @property
    def _adam(self) -> Adam:
        return Adam(self.lr, (0.9, 0.999), self.adam_eps)

    def check(self, rounds: int) -> None:
        self.base.check(rounds)
        inner = self.base
        while isinstance(inner, HeadRefinement):
            if inner.moments == self.moments:
                name = type(self).__name__
                raise InputError(
                    f"strategy.server.base: {name} cannot be its own base; choose one such as fedavg or fedadam"
                )
            inner = inner.base
        if not inner.refinable:
            raise InputError(
                f"strategy.server.base: {type(inner).__name__} evaluates another model than clients receive, and only "
                "that one would be refined; choose one such as fedavg or fedadam"
            )

    def prepare(self, network: torch.nn.Module) -> None:
        self.base.prepare(network)

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        state = self.base.init(model, layout, clients)
        return ServerState(state.model, {**state.slots, **self._adam.init(model[layout.head], self.moments)})

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor, round: Round) -> torch.Tensor:
        return self.base.steps(state, cohort, usual, round)

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return self.base.weights(state, senders)

    def broadcast(self, state: ServerState) -> Vectors:
        return self.base.broadcast(state)

    def models_for(self, state: ServerState, clients: torch.Tensor, layout: Layout) -> torch.Tensor | None:
        return self.base.models_for(state, clients, layout)

    def unsent(self, state: ServerState, clients: torch.Tensor) -> torch.Tensor:
        return self.base.unsent(state, clients)

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        moments = {name: slot for name, slot in state.slots.items() if name.startswith(f"{self.moments}/")}
        base, metrics = self.base.aggregate(state, update, round)
        layout = round.layout
        head = base.model[layout.head]
        bias = layout.head_bias(head)
        refined = self.refine(layout.head_rows(head, self.with_bias), update, round)
        head = layout.head_entries(refined.embeddings.to(head), bias)
        if refined.gradient is not None:
            gradient = layout.head_entries(refined.gradient.to(head), torch.zeros_like(bias))
            head, moments = self._adam.step(head, gradient, moments, self.moments)
        model = base.model.clone()
        model[layout.head] = head
        return ServerState(model, {**base.slots, **moments}), metrics | refined.metrics


def aggregating(server: ServerStrategy) -> ServerStrategy:
    """The server strategy that aggregates: the innermost base of refinements, or the strategy itself."""
    while isinstance(server, HeadRefinement):
        server = server.base
    return server
