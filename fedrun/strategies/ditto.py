"""Ditto: each client also trains a personal model (Li, Hu, Beirami, Smith, ICML 2021, arXiv 2012.04221)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors

OWN = "own"
"""v_k: the client's own model ``[P]`` in its state, its parameters ``[T]`` in local training."""


@config_class
class Ditto(ClientStrategy):
    """Plain local SGD of the global model w, and on the same batches of the client's own model v_k.

    v_k begins as the first w that the client receives. Its steps have neither momentum nor weight decay, and they are
    neither clipped nor repaired. Only the global model is sent, and only the own one is evaluated. Both share the float
    buffers of the network. Every sample is processed twice. It also counts twice in ``train/loss`` and
    ``train/accuracy``, which are means over both models.

    Attributes:
        strength: λ ≥ 0; 0: each client trains its own model alone.
    """

    strength: Annotated[float, Ge(0)]

    passes: ClassVar[tuple[int, ...]] = (2,)
    assumes_sgd: ClassVar[bool] = True

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {OWN: layout.size}

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        return client_state[OWN]

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        begun = torch.where(client.is_new, received[MODEL], client_state[OWN])
        own, anchor = begun[..., : client.trainable].clone(), received[MODEL][..., : client.trainable]
        return {OWN: own, "anchor": anchor, "lr": own.new_tensor([client.lr])}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        own = constants[OWN]
        # v_k ← v_k − η (g(v_k) + λ (v_k − w))
        own -= constants["lr"] * (gradient(own, 0) + self.strength * (own - constants["anchor"]))
        return gradient(model, 0)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {MODEL: model}, {OWN: torch.cat([constants[OWN], model[..., client.trainable :]], -1)}
