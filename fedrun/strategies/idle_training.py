"""FedUmf's training of clients in rounds for which they are not selected."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import Vectors

IDLE = "idle"
"""g_k in a client's state: the displacement of its parameters by training that was not sent, ``[T]``."""


@dataclass(frozen=True)
class IdleTraining:
    """A client that was idle in the round before starts at θ + α (η_t / η_{t−1}) g_k, the others at θ.

    g_k lasts for one round: only a client that is selected in the next round uses it.

    Attributes:
        alpha: α in (0, 1].
    """

    alpha: float

    def keep(self, start: torch.Tensor, model: torch.Tensor, layout: Layout) -> Vectors:
        """What an idle client keeps after its training from ``start`` to ``model``, ``[P]`` each."""
        # g_k = y_k − θ'
        return {IDLE: model[: layout.trainable] - start[: layout.trainable]}

    def start(self, start: torch.Tensor, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        """The model ``[..., P]`` at which a selected client starts; a new tensor, or ``start`` itself.

        Args:
            start: the client strategy's choice, ``[..., P]``.
            client_state: the clients' states, with a g_k of zeros for clients that were not idle.
            client: the information about the client.
        """
        if client.round == 0:
            return start
        fused = start.clone()
        # θ + α (η_t / η_{t−1}) g_k
        ratio = client.lr / client.local.rate(client.round - 1)
        fused[..., : client.trainable].add_(client_state[IDLE], alpha=self.alpha * ratio)
        return fused
