"""FedSGD: one gradient of all of a client's data per round (McMahan et al., 2017, arXiv 1602.05629)."""

from __future__ import annotations

from typing import ClassVar

from fedrun.config.allowed_values import shown
from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError


@config_class
class FedSGD(ClientStrategy):
    """Plain SGD that makes exactly one step, on one batch of all n_k samples: E = 1, B = ∞.

    With y_k = x − η g_k the weighted mean of the models is x − η Σ p_k g_k, the step along the mean gradient.
    """

    assumes_sgd: ClassVar[bool] = True

    def check(self, local: LocalTraining) -> None:
        if local.batch_size is not None or (local.epochs, local.steps) not in ((1, None), (None, 1)):
            raise InputError(
                f"strategy/client=fedsgd makes one step on all of a client's samples, but local.batch_size="
                f"{shown(local.batch_size)}, local.epochs={shown(local.epochs)}, local.steps={shown(local.steps)}; "
                "allowed: batch_size=null with epochs=1; for more local work choose strategy=fedavg"
            )
