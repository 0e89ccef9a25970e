"""MOON as TurboSVM-FL's published code runs it, for its tables."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientInfo, ClientStrategy
from fedrun.strategies.vectors import EARLIER, MODEL, Vectors


@config_class
class MoonTurboSVM(ClientStrategy):
    """Keep embeddings near the broadcast model's and away from those of this round's earlier epochs.

    No model of an earlier round is remembered, and samples are visited in the same order in every epoch. In the first
    epoch there is nothing to keep away from and the term vanishes: with ``local.epochs=1`` this is FedAvg with batches
    that are not shuffled. In an epoch's last, shorter batch the code compares embeddings of different samples; so does
    this.

    Attributes:
        mu: μ ≥ 0, weight of the term.
        tau: τ > 0, the temperature.
    """

    mu: Annotated[float, Ge(0)]
    tau: Annotated[float, Gt(0)]

    compares: ClassVar[tuple[str, ...]] = (MODEL,)
    shuffles: ClassVar[bool] = False
    recalls: ClassVar[bool] = True

    def constants(self, received: Vectors, memory: Vectors, client: ClientInfo) -> Vectors:
        return {MODEL: received[MODEL]}

    def contrast(self, embeddings: torch.Tensor, others: Vectors, constants: Vectors) -> torch.Tensor:
        cosine = torch.nn.functional.cosine_similarity
        near = cosine(embeddings, others[MODEL], dim=-1)  # [B]
        far = cosine(embeddings, others[EARLIER], dim=-1)  # [e - 1, B]
        # −log(e^(a/τ) / (e^(a/τ) + Σ_e e^(b_e/τ)))
        logits = torch.cat([near[None], far]) / self.tau
        return self.mu * (logits.logsumexp(0) - logits[0])
