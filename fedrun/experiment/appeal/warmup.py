"""Thresholds from models that clients train alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.data.federation import ClientIndices
from fedrun.experiment.appeal.base import Solo, Thresholds, WithThresholds
from fedrun.strategies.local_training import LocalTraining
from fedrun.system.errors import InputError


@config_class
class WarmUp(WithThresholds):
    """ρ_k is the loss of a model that the client has trained alone from the common initial model, as in MaxFL.

    Attributes (besides those of :class:`WithThresholds`):
        steps: SGD steps of that training, 100 in the paper.
        lr: its learning rate; None: that of local training.
        batch_size: its batch size in samples; None: that of local training.
    """

    trained: ClassVar[bool] = True

    steps: Annotated[int, Ge(1)]
    lr: Annotated[float, Gt(0)] | None
    batch_size: Annotated[int, Ge(1)] | None

    def thresholds(self, clients: ClientIndices, local: LocalTraining, solo: Solo) -> Thresholds:
        # ρ_k = F_k(ŵ_k), with ŵ_k the client's own model after the warm-up
        alone = solo(
            replace(
                local.at_rate(local.lr if self.lr is None else self.lr),
                batch_size=local.batch_size if self.batch_size is None else self.batch_size,
                epochs=None,
                steps=self.steps,
            )
        )
        diverged = (~alone.train_loss.isfinite()).nonzero().flatten().tolist()
        if diverged:
            key, rate = ("local.lr", local.lr) if self.lr is None else ("appeal.lr", self.lr)
            raise InputError(
                f"{key}={rate:g}: the training that sets the thresholds diverged for {len(diverged)} of {len(clients)} "
                f"clients, first for client {diverged[0]}; allowed: a rate with which it does not (appeal.lr)"
            )
        return Thresholds(alone.train_loss, alone.test_loss, alone.test_score)
