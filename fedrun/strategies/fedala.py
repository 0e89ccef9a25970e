"""FedALA: start from a learned elementwise mixture of the local and the global model (Zhang et al., AAAI 2023, arXiv
2212.01197).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors

LOCAL = "local"
"""v_k: the top tensors of the client's last local model ``[m]``."""

WEIGHTS = "weights"
"""W_k: the global model's share in each of their entries ``[m]``, in [0, 1]."""

ADAPTED = "adapted"
"""Whether the client has learned W before, 0 or 1 ``[1]``."""

START = "start"
"""Where local training starts ``[P]``."""

RECORDED = 10
"""In a client's first adaptation, the last losses that must agree."""

SPREAD = 0.1
"""Their largest standard deviation."""

MOST_PASSES = 100
"""Of a client's first adaptation."""


@config_class
class FedALA(ClientStrategy):
    """Before plain local SGD, a client learns where its top tensors start between its last local model v and x.

    The lower tensors start at the received model x, the top ones at v + (x − v) W. W is learned by gradients on some of
    the client's samples in evaluation mode: one pass over them per round. The client's first adaptation, in its second
    round, makes passes until the loss settles (at most 100). In its first round it starts at x. A client is evaluated
    by the model at which its local training would start in the next round, with W just learned. Costs include the
    adaptation before training, not the passes of evaluations.

    Attributes:
        tensors: p ≥ 1, how many of the last parameter tensors are adapted; 2: weight and bias of the head.
        sample_share: s in (0, 1] of the client's samples, drawn again in every round.
        weight_lr: η_w > 0, the rate of W.
    """

    tensors: Annotated[int, Ge(1)]
    sample_share: Annotated[float, Gt(0), Le(1)]
    weight_lr: Annotated[float, Gt(0)]

    wants: ClassVar[frozenset[Measurement]] = frozenset({"batch_gradient"})

    def top(self, layout: Layout) -> slice:
        """The entries of the tensors that are adapted."""
        trained = [slot for slot in layout.slots if slot.stop <= layout.trainable]
        return slice(trained[-self.tensors :][0].start, layout.trainable)

    def client_state(self, layout: Layout) -> dict[str, int]:
        top = self.top(layout)
        return {LOCAL: top.stop - top.start, WEIGHTS: top.stop - top.start, ADAPTED: 1}

    def carried(self, layout: Layout) -> slice:
        return self.top(layout)

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        weights = self._learned(received[MODEL], client_state, client)
        return adapted(received[MODEL], self.top(client.layout), client_state[LOCAL], weights)

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        x = received[MODEL]
        if client.is_new:
            return {START: x, WEIGHTS: torch.ones_like(client_state[WEIGHTS]), ADAPTED: x.new_zeros(1)}
        weights = self._learned(x, client_state, client)
        start = adapted(x, self.top(client.layout), client_state[LOCAL], weights)
        return {START: start, WEIGHTS: weights, ADAPTED: x.new_ones(1)}

    def _learned(self, x: torch.Tensor, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        """W after a pass over some of the client's samples; the first time, after passes until the loss settles."""
        assert client.batch_gradient is not None
        local, weights, once = client_state[LOCAL], client_state[WEIGHTS], bool(client_state[ADAPTED])
        top, samples = self.top(client.layout), int(client.samples)
        drawn = max(1, int(self.sample_share * samples))
        positions = client.random("adaptation", lambda draw: torch.randperm(samples, generator=draw)[:drawn])
        losses: list[float] = []
        while True:
            for batch in torch.split(positions, client.local.batch_size or drawn):
                loss, gradient = client.batch_gradient(adapted(x, top, local, weights), batch)
                # W ← W − η_w ∂F/∂θ (x − v), in [0, 1]
                weights = (weights - self.weight_lr * gradient[top] * (x[top] - local)).clamp(0, 1)
            losses.append(loss)
            settled = len(losses) > RECORDED and torch.tensor(losses[-RECORDED:]).std(correction=0) < SPREAD
            if once or settled or len(losses) == MOST_PASSES:
                return weights

    def start(self, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo) -> torch.Tensor:
        return constants[START]

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        top = self.top(client.layout)
        return {MODEL: model}, {LOCAL: model[top], WEIGHTS: constants[WEIGHTS], ADAPTED: constants[ADAPTED]}


def adapted(model: torch.Tensor, top: slice, local: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The model x ``[P]`` with v + (x − v) W for its top tensors."""
    start = model.clone()
    start[top] = local + (model[top] - local) * weights
    return start
