"""FedAwS: averaging, then spreading out the class embeddings (Yu et al., ICML 2020, arXiv 2004.10342).

In the form that TurboSVM-FL's authors compare with: clients use ordinary cross-entropy, and the regulariser is the sum
of the positive cosines between embeddings.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Gt
from pydantic.dataclasses import dataclass

from fedrun.errors import InputError
from fedrun.parameters import Layout
from fedrun.recipe import STRICT
from fedrun.strategies.adam import Adam
from fedrun.strategies.base import CohortUpdate, Round, Rows, ServerHalf, ServerState, Vectors

MOMENTS = "fedaws"


def positive_cosines(embeddings: torch.Tensor) -> torch.Tensor:
    """Σ_{c<c'} max(cos(u_c, u_c'), 0) of embeddings ``[C, d]``: a differentiable scalar."""
    directions = torch.nn.functional.normalize(embeddings, dim=-1)
    return (directions @ directions.T).triu(1).relu().sum()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FedAwS(ServerHalf):
    """After the base's aggregation, one Adam step on the logit layer against the sum of positive cosines.

    Attributes:
        base: aggregates the whole model first: FedAvg or a server optimizer.
        lr: η_g > 0, Adam's learning rate on the logit layer.
        adam_eps: ε > 0 of that Adam. The published code uses 1e-5, torch's default is 1e-8.
        bias: ``coordinate``: a class's bias is the last coordinate of its embedding (published code); ``separate``: the
            embedding is the weight row alone and the bias stays as the base leaves it.
    """

    base: ServerHalf
    lr: Annotated[float, Gt(0)]
    adam_eps: Annotated[float, Gt(0)]
    bias: Literal["coordinate", "separate"]

    @property
    def needs(self) -> frozenset[str]:
        return self.base.needs

    @property
    def broadcasts(self) -> frozenset[str]:
        return self.base.broadcasts

    @property
    def maintains(self) -> frozenset[str]:
        return self.base.maintains

    @property
    def rows(self) -> Rows:
        return self.base.rows

    @property
    def _adam(self) -> Adam:
        return Adam(self.lr, (0.9, 0.999), self.adam_eps)

    def check(self, rounds: int) -> None:
        self.base.check(rounds)
        if isinstance(self.base, FedAwS):
            raise InputError(
                "strategy.server.base: FedAwS cannot be its own base; choose one such as fedavg or fedadam"
            )

    def init(self, model: torch.Tensor, layout: Layout) -> ServerState:
        state = self.base.init(model, layout)
        return ServerState(state.model, {**state.slots, **self._adam.init(model[layout.head], MOMENTS)})

    def weights(self, samples: torch.Tensor) -> torch.Tensor:
        return self.base.weights(samples)

    def broadcast(self, state: ServerState) -> Vectors:
        return self.base.broadcast(state)

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        own = {name: slot for name, slot in state.slots.items() if name.startswith(f"{MOMENTS}/")}
        base, metrics = self.base.aggregate(state, update, round)
        layout = round.layout
        head = base.model[layout.head]
        bias = head[layout.classes * layout.embedding :]
        embeddings = layout.head_rows(head, self.bias == "coordinate").clone().requires_grad_()
        loss = positive_cosines(embeddings)
        (gradient,) = torch.autograd.grad(loss, embeddings)
        model = base.model.clone()
        model[layout.head], moments = self._adam.step(
            head, layout.head_entries(gradient, torch.zeros_like(bias)), own, MOMENTS
        )
        return ServerState(model, {**base.slots, **moments}), metrics | {"spread_out_loss": loss.item()}
