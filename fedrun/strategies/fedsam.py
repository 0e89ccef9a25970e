"""FedSAM: sharpness-aware local steps (Qu et al., ICML 2022; Caldarola et al., ECCV 2022, arXiv 2203.11834)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import Vectors

GUARD = 1e-7
"""Added to the gradient's norm, as in published code."""


@config_class
class FedSAM(ClientStrategy):
    """Step along the gradient at y + e, where e increases the loss: ``ρ g(y) / ‖g(y)‖``, on the same batch.

    The norm is one number over all parameters. Weight decay acts at the unperturbed y, clipping on the second gradient
    alone. Every sample is processed twice, and counts twice in ``train/loss`` and ``train/accuracy``. BatchNorm's
    running statistics move in the pass at y alone; in published code both passes move them.

    Attributes:
        rho: ρ ≥ 0; 0: plain SGD.
    """

    rho: Annotated[float, Ge(0)]

    passes: ClassVar[tuple[int, ...]] = (2,)

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        uphill = gradient(model, 0)
        # e = ρ g(y) / (‖g(y)‖ + 1e-7);  the step follows g(y + e)
        return gradient(model + self.rho * uphill / (norm(uphill) + GUARD), 0, moves_buffers=False)


@config_class
class FedASAM(FedSAM):
    """FedSAM whose perturbation is scaled by the size of every weight: e = ρ T u / ‖u‖ with u = T g(y).

    T = |y| + η_a for tensors whose name holds ``weight``, 1 for the others.

    Attributes:
        eta: η_a ≥ 0.
    """

    eta: Annotated[float, Ge(0)]

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        scaled = torch.zeros(client.trainable, dtype=torch.bool)
        for slot in client.layout.slots:
            if "weight" in slot.name:
                scaled[slot.start : slot.stop] = True
        constants = super().constants(received, client_state, client)
        return {**constants, "scaled": scaled.to(client.samples.device)}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        # T = |y| + η_a on weights, 1 elsewhere
        scale = torch.where(constants["scaled"], model.abs() + self.eta, 1.0)
        # u = T g(y);  e = ρ T u / ‖u‖
        uphill = scale * gradient(model, 0)
        return gradient(model + self.rho * scale * uphill / (norm(uphill) + GUARD), 0, moves_buffers=False)


def norm(vectors: torch.Tensor) -> torch.Tensor:
    """The Euclidean norm of vectors ``[..., T]``, ``[..., 1]``."""
    length: torch.Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return length
