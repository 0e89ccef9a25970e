"""FedBuff: buffered asynchronous aggregation (Nguyen et al., AISTATS 2022, arXiv 2106.06639)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.experiment.aggregation.asynchronous import Asynchronous
from fedrun.system.errors import InputError


@config_class
class FedBuff(Asynchronous):
    """The server strategy makes its step from the mean of K displacements, each scaled by its staleness.

    The mean has the server strategy's weights, by samples for most; the paper's are equal
    (``strategy.server.weighting=uniform``). Float buffers are means that are not scaled.

    Attributes (besides those of :class:`Asynchronous`):
        buffer: K.
    """

    buffer: Annotated[int, Ge(1)]

    def check_clients(self, clients: int) -> None:
        if self.buffer > clients:
            raise InputError(
                f"aggregation.buffer={self.buffer}: a step has at most one upload of each client, and there are "
                f"{clients}; allowed: 1 to {clients}"
            )

    @property
    def count(self) -> int:
        return self.buffer

    def arrived(
        self, upload: torch.Tensor, sent: torch.Tensor, current: torch.Tensor, staleness: int, trainable: int
    ) -> torch.Tensor:
        arrived = upload.clone()
        # x_t + s(τ) (y_k − x_{t−τ}), so that the mean's displacement is Σ_k p_k s(τ_k) (y_k − x_{t−τ_k}), with the
        # server strategy's weights p_k: in the paper 1 / K
        displacement = upload[:trainable] - sent[:trainable]
        torch.add(current[:trainable], displacement, alpha=self.factor(staleness), out=arrived[:trainable])
        return arrived
