"""MOON: model-contrastive federated learning (Li, He, Song, CVPR 2021, arXiv 2103.16257)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientInfo, ClientStrategy
from fedrun.strategies.vectors import MODEL, Vectors

PREVIOUS = "previous"
"""v_k, the client's last local model."""


@config_class
class Moon(ClientStrategy):
    """Keep the representation near the broadcast model's and away from that of the client's own previous model.

    loss = CE + μ ℓ with ℓ = −log(exp(cos(z, z_g)/τ) / (exp(cos(z, z_g)/τ) + exp(cos(z, z_p)/τ))), where z, z_g and z_p
    are a sample's embeddings under the model in training, the broadcast one and the previous one. ℓ = 0 for a client
    that has not taken part before. The embedding is what the head reads; the paper's projection head, where wanted, is
    part of the model.

    Attributes:
        mu: μ ≥ 0.
        tau: τ > 0, the temperature.
    """

    mu: Annotated[float, Ge(0)]
    tau: Annotated[float, Gt(0)]

    remembers_models: ClassVar[frozenset[str]] = frozenset({PREVIOUS})
    compares: ClassVar[tuple[str, ...]] = (MODEL, PREVIOUS)

    def constants(self, received: Vectors, memory: Vectors, client: ClientInfo) -> Vectors:
        previous = memory[PREVIOUS]
        # memory is zero until a client has trained
        return {MODEL: received[MODEL], PREVIOUS: previous, "weight": self.mu * previous.any(-1, keepdim=True)}

    def contrast(self, embeddings: torch.Tensor, others: Vectors, constants: Vectors) -> torch.Tensor:
        cosine = torch.nn.functional.cosine_similarity
        near, far = (cosine(embeddings, others[name], dim=-1) for name in (MODEL, PREVIOUS))
        # −log(e^a / (e^a + e^b)) = log(1 + e^(b − a))
        return constants["weight"] * torch.nn.functional.softplus((far - near) / self.tau)

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {MODEL: model}, {PREVIOUS: model}
