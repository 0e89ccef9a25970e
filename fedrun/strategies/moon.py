"""MOON: model-contrastive federated learning (Li, He, Song, CVPR 2021, arXiv 2103.16257)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Measurement, Outputs
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors

PREVIOUS = "previous"
"""v_k, the client's last local model."""


@config_class
class Moon(ClientStrategy):
    """Keep the representation near the broadcast model's and away from that of the client's own previous model.

    loss = CE + μ ℓ with ℓ = −log(exp(cos(z, z_g)/τ) / (exp(cos(z, z_g)/τ) + exp(cos(z, z_p)/τ))), where z, z_g and z_p
    are a sample's embeddings under the model in training, the broadcast one and the previous one. The embedding is the
    head's input; the paper's projection head is part of the model (``model=niid_simple_cnn model.projection=256``).

    Attributes:
        mu: μ ≥ 0.
        tau: τ > 0, the temperature.
        newcomers: a client that has not taken part before has ℓ = 0 (``skip``), or the initial model as its previous
            one (``initial``), as in the codes of MOON and NIID-Bench.
    """

    mu: Annotated[float, Ge(0)]
    tau: Annotated[float, Gt(0)]
    newcomers: Annotated[Literal["skip", "initial"], Neutral("skip")]

    reference_models: ClassVar[tuple[str, ...]] = (MODEL, PREVIOUS)

    @property
    def wants(self) -> frozenset[Measurement]:
        return frozenset({"embeddings", "initial_model"} if self.newcomers == "initial" else {"embeddings"})

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {PREVIOUS: layout.size}

    def carried(self, layout: Layout) -> slice:
        # the earlier model is a reference, as a whole
        return slice(0, 0)

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        known, initial = ~client.is_new, client.initial_model
        # not zeros, for which a layer that divides by the norm of its weights gives NaN
        previous = torch.where(known, client_state[PREVIOUS], received[MODEL] if initial is None else initial)
        if initial is not None:
            known = torch.ones_like(known)
        return {MODEL: received[MODEL], PREVIOUS: previous, "weight": self.mu * known}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        similarity = {name: cosine(outputs, other) for name, other in outputs.references.items()}
        # −log(e^a / (e^a + e^b)) = log(1 + e^(b − a))
        excess = (similarity[PREVIOUS] - similarity[MODEL]) / self.tau
        contrast = torch.nn.functional.softplus(excess)
        return super().loss(outputs, targets, constants) + constants["weight"] * contrast

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        return {MODEL: model}, {PREVIOUS: model}


def cosine(outputs: Outputs, others: Outputs) -> torch.Tensor:
    """The cosine of the embeddings of every sample under two models, ``[B]``."""
    assert outputs.embeddings is not None
    assert others.embeddings is not None
    return torch.nn.functional.cosine_similarity(outputs.embeddings, others.embeddings, dim=-1)
