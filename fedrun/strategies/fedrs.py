"""FedRS: restricted softmax (Li, Zhan, KDD 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Measurement, Outputs
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import Vectors


@config_class
class FedRS(ClientStrategy):
    """The loss, such as cross-entropy, of logits that are scaled down for classes which the client does not have.

    The paper's classifier has no bias; where there is one, the whole logit is scaled. Evaluation uses plain logits.

    Attributes:
        alpha: α in [0, 1], the factor of a missing class; 1: plain SGD.
        soft: scale every class by (1 − α) r_c + α, with r_c its share of the client's samples over the largest such
            share, as the authors' repository does; otherwise present classes are left alone, as in the paper.
    """

    alpha: Annotated[float, Ge(0), Le(1)]
    soft: bool

    wants: ClassVar[frozenset[Measurement]] = frozenset({"label_counts"})

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        assert client.label_counts is not None
        counts = client.label_counts
        # (1 − α) r_c + α, where r_c is n_c / max_c' n_c', or [n_c > 0]: 1 for a class that the client has, else α
        ratio = counts / counts.amax(-1, keepdim=True) if self.soft else (counts > 0).float()
        return {"scale": (1 - self.alpha) * ratio + self.alpha}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        # z'_c = z_c if the client has class c, else α z_c
        scaled = replace(outputs, logits=outputs.logits * constants["scale"])
        return super().loss(scaled, targets, constants)
