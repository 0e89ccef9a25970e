"""Per-FedAvg: a model that is good after one step of gradient descent on the client (Fallah, Mokhtari, Ozdaglar,
NeurIPS 2020, arXiv 2002.07948).
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import InputError


@config_class
class PerFedAvgFO(ClientStrategy):
    """Local SGD on F_k(w − α ∇F_k(w)), whose gradient is taken at the adapted model (first-order approximation).

    A step consumes two independent batches; its rate is the paper's β, ``local.lr``. For a client's own result,
    evaluate with ``evaluation.tuning_steps=1`` and ``evaluation.tuning_lr`` = α.

    Attributes:
        alpha: α > 0, the rate of the adaptation.
    """

    alpha: Annotated[float, Gt(0)]

    passes: ClassVar[tuple[int, ...]] = (1, 1)

    def check(self, local: LocalTraining) -> None:
        if local.batch_size is None:
            raise InputError(
                "local.batch_size=null: Per-FedAvg needs independent batches for every step; allowed: a number"
            )

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        # g(u; B1) at u = w − α g(w; B0)
        return gradient(model - self.alpha * gradient(model, 0), 1)


@config_class
class PerFedAvgHF(PerFedAvgFO):
    """Per-FedAvg with the Hessian's part of the gradient, by differences (Hessian-free); a step consumes three batches.

    Attributes:
        difference: δ > 0 of the difference quotient.
    """

    difference: Annotated[float, Gt(0)]

    passes: ClassVar[tuple[int, ...]] = (1, 1, 2)

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        v = super().direction(gradient, model, constants)
        # g(u; B1) − α H v with H v ≈ (g(w + δ v; B2) − g(w − δ v; B2)) / (2 δ)
        ahead, behind = (gradient(model + sign * self.difference * v, 2) for sign in (1, -1))
        return v - self.alpha * (ahead - behind) / (2 * self.difference)
