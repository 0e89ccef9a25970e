"""The settings of local training."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.allowed_values import shown
from fedrun.config.config_class import config_class
from fedrun.models.precision import Precision
from fedrun.system.errors import InputError


@config_class
class LocalTraining:
    """How every client trains. The optimizer is fresh in every round, unless the client strategy keeps its momentum.

    Attributes:
        lr: η > 0, the learning rate in the first round.
        lr_decay: the rate in round t = 0, 1, .. is lr · lr_decay^t.
        momentum: of SGD, in [0, 1).
        weight_decay: λ ≥ 0 of the term λ/2 ‖y‖² over the parameters, added after gradient clipping.
        batch_size: B ≥ 1 samples; None: all of a client's samples are one batch. The last batch of an epoch may be
            smaller.
        epochs: E ≥ 1 passes over the client's samples, or None where ``steps`` is given.
        steps: K ≥ 1 SGD steps, begun anew with a reshuffled epoch as often as needed, or None where ``epochs`` is
            given.
        max_gradient_norm: the gradient (after the strategy's correction) is scaled down to this norm; None: never.
        precision: ``bfloat16``: forward and backward passes of the SGD steps multiply numbers with 8 significant bits,
            faster where the machine has instructions for it; results differ from the third digit on.
        repair_nonfinite: replace NaN and infinities in the parameters by 1e-5 after every SGD step and after every
            aggregation, as TurboSVM-FL's published code does. It matters only for runs that diverge.
    """

    lr: Annotated[float, Gt(0)]
    lr_decay: Annotated[float, Gt(0), Le(1)]
    momentum: Annotated[float, Ge(0), Lt(1)]
    weight_decay: Annotated[float, Ge(0)]
    batch_size: Annotated[int, Ge(1)] | None
    epochs: Annotated[int, Ge(1)] | None
    steps: Annotated[int, Ge(1)] | None
    max_gradient_norm: Annotated[float, Gt(0)] | None
    precision: Precision
    repair_nonfinite: bool

    def check(self) -> None:
        """Reject settings that contradict each other."""
        if (self.epochs is None) == (self.steps is None):
            raise InputError(
                f"local.epochs={shown(self.epochs)} and local.steps={shown(self.steps)}: exactly one of the two "
                "must be a number, the other null"
            )

    def rate(self, round: int) -> float:
        """η_t, the learning rate in round t = 0, 1, .."""
        return self.lr * self.lr_decay**round
