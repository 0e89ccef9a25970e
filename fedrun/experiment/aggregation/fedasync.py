"""FedAsync: a server step for every upload (Xie, Koyejo and Gupta, OPT 2020, arXiv 1903.03934)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le

from fedrun.config.config_class import config_class
from fedrun.experiment.aggregation.asynchronous import Asynchronous


@config_class
class FedAsync(Asynchronous):
    """The model moves towards every client's model as it arrives, the less the staler that is.

    The paper's clients minimise F_k(y) + ρ/2 ‖y − x‖²: ``strategy/client=fedprox``.

    Attributes (besides those of :class:`Asynchronous`):
        alpha: α, the share of a fresh upload in the next model.
    """

    alpha: Annotated[float, Gt(0), Le(1)]

    count: ClassVar[int] = 1

    def arrived(
        self, upload: torch.Tensor, sent: torch.Tensor, current: torch.Tensor, staleness: int, trainable: int
    ) -> torch.Tensor:
        # (1 − α_t) x_t + α_t y_k with α_t = α s(τ)
        return torch.lerp(current, upload, self.alpha * self.factor(staleness))
