"""MaxFL: maximise the number of clients that the global model appeals to (Cho et al., TMLR 2024, arXiv 2205.14840)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.server import CohortUpdate, Round, Senders, ServerState, ServerStrategy
from fedrun.strategies.vectors import MODEL, Vectors

NEARNESS = "nearness"
"""q_k, one number: how close the client's loss is to its threshold."""


@config_class
class MaxFLClient(ClientStrategy):
    """Plain local SGD; the client also reports how close its loss at the broadcast model is to its threshold.

    Attributes:
        tuning_steps: SGD steps by which the client adapts the broadcast model before it measures that loss (local
            tuning); 0: none. Its upload is trained from the broadcast model in either case.
    """

    tuning_steps: Annotated[int, Ge(0)]

    sends: ClassVar[frozenset[str]] = frozenset({MODEL, NEARNESS})
    wants: ClassVar[frozenset[Measurement]] = frozenset({"initial_loss", "threshold"})

    @property
    def steps_before_loss(self) -> int:
        return self.tuning_steps

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.initial_loss is not None
        assert client.threshold is not None
        return {MODEL: model, NEARNESS: nearness(client.initial_loss, client.threshold)}, {}


def nearness(loss: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """q = σ(x) (1 − σ(x)) with x = F − ρ, the sigmoid's slope: float64, at most 1/4."""
    # in float64 and by e^(−|x|), so that the weight of a client far from its threshold is small but not 0
    shrunk = torch.exp(-(loss - threshold).abs())
    return shrunk / (1 + shrunk) ** 2


@config_class
class MaxFLServer(ServerStrategy):
    """A step along the clients' displacements, weighted by q_k; the number of samples does not matter.

    Attributes:
        lr: η_g > 0; with a tiny ε, 1 makes the next model a weighted mean of the clients' models.
        eps: ε > 0 in the adaptive rate η_g / (Σ q_k + ε).
    """

    lr: Annotated[float, Gt(0)]
    eps: Annotated[float, Gt(0)]

    needs: ClassVar[frozenset[str]] = frozenset({MODEL, NEARNESS})

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        return senders.reports[NEARNESS]

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        # w ← w + η_g / (Σ q_k + ε) Σ q_k (y_k − w) = w + η_g Σ q_k / (Σ q_k + ε) (Σ p_k y_k − w), p_k = q_k / Σ q_j
        rate = self.lr * update.total_weight / (update.total_weight + self.eps)
        model = update.mean[MODEL]  # buffers are averaged
        trainable = round.layout.trainable
        model[:trainable].lerp_(state.model[:trainable], 1 - rate)
        return ServerState(model, state.slots), {"nearness": update.total_weight / len(update.clients)}
