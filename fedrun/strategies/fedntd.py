"""FedNTD: not-true distillation (Lee et al., NeurIPS 2022, arXiv 2106.03097)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Outputs
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors


@config_class
class FedNTD(ClientStrategy):
    """Distil the broadcast model's predictions of the wrong classes: CE + β τ² KL(q^g ‖ q).

    q and q^g are the softmax of the logits over τ under the model in training and under the broadcast model, without
    the entry of the true class. The broadcast model is in evaluation mode.

    Attributes:
        beta: β ≥ 0; 0: plain SGD.
        tau: τ > 0.
    """

    beta: Annotated[float, Ge(0)]
    tau: Annotated[float, Gt(0)]

    needs_classes: ClassVar[bool] = True
    reference_models: ClassVar[tuple[str, ...]] = (MODEL,)

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        return {MODEL: received[MODEL]}

    def loss(self, outputs: Outputs, targets: torch.Tensor, constants: Vectors) -> torch.Tensor:
        own, others = (
            torch.log_softmax(without(logits, targets) / self.tau, dim=1)
            for logits in (outputs.logits, outputs.references[MODEL].logits)
        )
        # KL(q^g ‖ q) = Σ_c q^g_c (ln q^g_c − ln q_c)
        divergence = (others.exp() * (others - own)).sum(1)
        return super().loss(outputs, targets, constants) + self.beta * self.tau**2 * divergence


def without(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The logits ``[B, C]`` without those of the true classes, ``[B, C − 1]``."""
    classes = logits.shape[1]
    rest = torch.arange(classes - 1, device=logits.device).expand(len(logits), -1)
    return logits.gather(1, rest + (rest >= targets[:, None]))
