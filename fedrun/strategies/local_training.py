"""The settings of local training."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from fedrun.config.allowed_values import shown
from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.config.marks import NoEffect
from fedrun.config.own_methods import is_fedruns
from fedrun.models.precision import Precision
from fedrun.system.errors import InputError, one_line

WITHOUT_ADAM = NoEffect("optimizer", ("sgd", "nesterov"))


@config_class
class LocalTraining:
    """How every client trains. The optimizer is reset in every round, unless the client strategy keeps its state.

    The rate in round t = 0, 1, .. is η · γ^⌊t / n⌋ · min(1, (t + 1) / w) · (1 + cos(π t / T)) / 2, where a key that is
    not used contributes the factor 1. It is constant within a round.

    Attributes:
        lr: η > 0, the learning rate in the first round, or at the end of the warm-up.
        lr_decay: γ, exponential decay of the rate; by steps if ``lr_decay_rounds`` > 1.
        lr_decay_rounds: n ≥ 1, rounds from one decay to the next.
        lr_warmup_rounds: w ≥ 0, rounds in which the rate rises linearly from η / w to η.
        lr_cosine_rounds: T ≥ 1 of a decay along half a cosine, which would reach 0 in round T; None: no such decay.
        optimizer: the update rule, with the numbers of the class of this name in ``torch.optim``: ``sgd``,
            ``nesterov`` (SGD with Nesterov's momentum), ``adam`` or ``adamw``.
        beta1: β₁ in [0, 1), the decay of the first moment of Adam and AdamW.
        beta2: β₂ in [0, 1), the decay of their second moment.
        eps: ε > 0 of Adam and AdamW.
        momentum: momentum of SGD, in [0, 1).
        weight_decay: λ ≥ 0 of the term λ/2 ‖y‖² over the parameters, added after gradient clipping. AdamW multiplies
            the parameters by 1 − η λ instead, before its step.
        batch_size: B ≥ 1 samples; None: all of a client's samples are one batch. The last batch of an epoch may be
            smaller.
        epochs: E ≥ 1 passes over the client's samples, or None if ``steps`` is given.
        steps: K ≥ 1 SGD steps, through as many reshuffled epochs as needed, or None if ``epochs`` is given.
        max_gradient_norm: the gradient (after the strategy's correction) is scaled down to this norm; None: never.
        precision: ``bfloat16``: forward and backward passes of the SGD steps multiply numbers with 8 significant bits,
            faster if the machine has instructions for it; results differ from the third digit on.
        repair_nonfinite: replace NaN and infinities in the parameters by 1e-5 after every SGD step and after every
            aggregation, as TurboSVM-FL's published code does. It matters only for runs that diverge.
    """

    lr: Annotated[float, Gt(0)]
    lr_decay: Annotated[float, Gt(0), Le(1)]
    lr_decay_rounds: Annotated[int, Ge(1), Neutral(1), NoEffect("lr_decay", (1.0,))]
    lr_warmup_rounds: Annotated[int, Ge(0), Neutral(0)]
    lr_cosine_rounds: Annotated[Annotated[int, Ge(1)] | None, Neutral(None)]
    optimizer: Annotated[Literal["sgd", "nesterov", "adam", "adamw"], Neutral("sgd")]
    beta1: Annotated[float, Ge(0), Lt(1), Neutral(0.9), WITHOUT_ADAM]
    beta2: Annotated[float, Ge(0), Lt(1), Neutral(0.999), WITHOUT_ADAM]
    eps: Annotated[float, Gt(0), Neutral(1e-8), WITHOUT_ADAM]
    momentum: Annotated[float, Ge(0), Lt(1)]
    weight_decay: Annotated[float, Ge(0)]
    batch_size: Annotated[int, Ge(1)] | None
    epochs: Annotated[int, Ge(1)] | None
    steps: Annotated[int, Ge(1)] | None
    max_gradient_norm: Annotated[float, Gt(0)] | None
    precision: Precision
    repair_nonfinite: bool

    def check(self, rounds: int) -> None:
        """Reject settings that contradict each other.

        Args:
            rounds: number of the run's rounds.

        Raises:
            InputError: naming the keys and what is allowed.
        """
        if (self.epochs is None) == (self.steps is None):
            raise InputError(
                f"local.epochs={shown(self.epochs)} and local.steps={shown(self.steps)}: exactly one of the two "
                "must be a number, the other null"
            )
        if self.optimizer == "nesterov" and not self.momentum:
            raise InputError("local.optimizer=nesterov with local.momentum=0.0: allowed: a momentum above 0")
        if self.adaptive and self.momentum:
            raise InputError(
                f"local.optimizer={self.optimizer} with local.momentum={self.momentum}: allowed: 0; its momentum is "
                "local.beta1"
            )
        if self.lr_warmup_rounds > rounds:
            raise InputError(
                f"local.lr_warmup_rounds={self.lr_warmup_rounds} with rounds={rounds}: the rate would never reach "
                "local.lr; allowed: at most as many as rounds"
            )
        if self.lr_cosine_rounds is not None and self.lr_cosine_rounds < rounds:
            raise InputError(
                f"local.lr_cosine_rounds={self.lr_cosine_rounds} with rounds={rounds}: the rate would be 0 before the "
                "last round; allowed: at least as many as rounds, or null"
            )
        if is_fedruns(type(self)) and not self.rate(rounds - 1):  # less than the smallest floating-point number
            raise InputError(
                f"local.lr_decay={self.lr_decay:g} with rounds={rounds}: the rate would be 0 in the last round; "
                "allowed: a larger one, or more rounds from one decay to the next (local.lr_decay_rounds)"
            )
        for round in range(0 if is_fedruns(type(self)) else rounds):  # the schedule is a user's
            rate: object = self.rate(round)
            if not (isinstance(rate, Real) and 0 < float(rate) < math.inf):
                raise InputError(
                    f"{type(self).__module__}.{type(self).__qualname__}.rate: returned {one_line(repr(rate), 80)} for "
                    f"round {round}; allowed: a finite number above 0"
                )

    @property
    def adaptive(self) -> bool:
        """Whether the optimizer is Adam or AdamW."""
        return self.optimizer in ("adam", "adamw")

    def rate(self, round: int) -> float:
        """η_t, the learning rate in round t = 0, 1, .."""
        rate = self.lr * self.lr_decay ** (round // self.lr_decay_rounds)
        if round < self.lr_warmup_rounds:
            rate *= (round + 1) / self.lr_warmup_rounds
        if self.lr_cosine_rounds is not None:
            rate *= (1 + math.cos(math.pi * round / self.lr_cosine_rounds)) / 2
        return rate

    def at_rate(self, lr: float) -> LocalTraining:
        """These settings with this learning rate in every round."""
        return replace(self, lr=lr, lr_decay=1.0, lr_warmup_rounds=0, lr_cosine_rounds=None)

    def optimizer_state(self, trainable: int) -> int:
        """The size of the optimizer's state for T trainable parameters.

        0 for plain SGD, T with momentum, 2 T + 1 for Adam: both moments, then the number of steps.
        """
        if self.adaptive:
            return 2 * trainable + 1
        return trainable if self.momentum else 0
