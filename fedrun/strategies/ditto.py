"""Ditto: a personal model beside the global one (Li, Hu, Beirami, Smith, ICML 2021, arXiv 2012.04221)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientInfo, ClientStrategy, Gradient
from fedrun.strategies.solo import OWN
from fedrun.strategies.vectors import MODEL, Vectors


@config_class
class Ditto(ClientStrategy):
    """Plain local SGD of the global model w, and on the same batches of the client's own model v_k.

    v_k ← v_k − η (g(v_k) + λ (v_k − w)) with w as broadcast; v_k begins as the first w that the client receives, and
    its steps have neither momentum nor weight decay, nor are they clipped or repaired. Only the global model is sent,
    and only the own one is tested. Both share the float buffers of the network. Every sample is processed twice, and
    counts twice, in ``train/loss`` and ``train/accuracy``, too, which are means over both models.

    Attributes:
        strength: λ ≥ 0; 0: every client for itself.
    """

    strength: Annotated[float, Ge(0)]

    remembers_models: ClassVar[frozenset[str]] = frozenset({OWN})
    personal: ClassVar[str | None] = OWN
    passes: ClassVar[tuple[int, ...]] = (2,)
    trains_beside: ClassVar[bool] = True

    def constants(self, received: Vectors, memory: Vectors, client: ClientInfo) -> Vectors:
        # memory is zero until a client has trained
        begun = memory[OWN].any(-1, keepdim=True)
        own = torch.where(begun, memory[OWN], received[MODEL])[..., : client.trainable].clone()
        return {OWN: own, "anchor": received[MODEL][..., : client.trainable], "rate": own.new_tensor(client.lr)}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        own = constants[OWN]
        move = gradient(own, 0) + self.strength * (own - constants["anchor"])
        own.sub_(constants["rate"] * move)
        return gradient(model, 0)

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {MODEL: model}, {OWN: torch.cat([constants[OWN], model[..., client.trainable :]], -1)}
