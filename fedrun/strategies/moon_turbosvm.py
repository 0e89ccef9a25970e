"""MOON as TurboSVM-FL's published code runs it, for its tables."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Measurement, Outputs
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.moon import cosine
from fedrun.strategies.vectors import MODEL, Vectors


@config_class
class MoonTurboSVM(ClientStrategy):
    """Keep embeddings near the broadcast model's and away from those of this round's earlier epochs.

    No model of an earlier round is kept, and samples are visited in the same order in every epoch. In the first epoch
    there are no earlier embeddings and the term is 0: with ``local.epochs=1`` this is FedAvg with batches that are not
    shuffled. In an epoch's last, shorter batch the code compares embeddings of different samples, and this class does
    the same.

    Attributes:
        mu: μ ≥ 0, weight of the term.
        tau: τ > 0, the temperature.
    """

    mu: Annotated[float, Ge(0)]
    tau: Annotated[float, Gt(0)]

    wants: ClassVar[frozenset[Measurement]] = frozenset({"embeddings", "earlier_embeddings"})
    reference_models: ClassVar[tuple[str, ...]] = (MODEL,)

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        return {MODEL: received[MODEL]}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        losses = super().loss(outputs, targets, constants)
        if outputs.earlier_embeddings is None:
            return losses
        assert outputs.embeddings is not None
        near = cosine(outputs, outputs.references[MODEL])  # [B]
        far = torch.nn.functional.cosine_similarity(outputs.embeddings, outputs.earlier_embeddings, dim=-1)  # [e, B]
        # −log(e^(a/τ) / (e^(a/τ) + Σ_e e^(b_e/τ)))
        logits = torch.cat([near[None], far]) / self.tau
        return losses + self.mu * (logits.logsumexp(0) - logits[0])
