"""Early rejection: testing a model stops as soon as it is clear that it has not reached a target accuracy.

The samples are drawn without replacement, in a new random order, in growing batches. A model that has reached the
target classifies at least K of all n samples correctly. After each batch a test computes the probability that such a
model classifies so few of the m drawn samples correctly: the exact lower tail of the hypergeometric distribution. The
tail falls as K grows, so the least K is tested. If the probability is at most δ, divided by the number of tests, the
model is rejected. The probability of rejecting a model that has reached the target is at most δ.

Over a run these probabilities do not add up. The rounds to a target are wrong only if the model of the first round that
reaches it is rejected. Models of earlier rounds have not reached it, and are tested on all samples unless rejected. So
δ bounds the probability that a run's rounds to a target are wrong, however many rounds are evaluated. With δ = 10⁻⁶,
the probability that any of a thousand runs is wrong is at most 10⁻³.

The tail is zero only if even a model that classifies all remaining samples correctly would miss the target. With δ = 0
a model is rejected only in this case, which is never wrong. A model that is not rejected is tested on all samples.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from fedrun.data.tasks.base import SampleResults, joined

GROWTH = 1.25
"""Least factor by which the number of samples grows from one test to the next."""


@dataclass(frozen=True)
class EarlyRejection:
    """The outcome of testing a model against a target.

    Attributes:
        results: on all samples, in their order; None if the model was rejected.
        correct: number of drawn samples that were classified correctly.
        drawn: m, the number of drawn samples.
    """

    results: SampleResults | None
    correct: int
    drawn: int


def evaluate_until_rejected(
    evaluate: Callable[[torch.Tensor], SampleResults],
    indices: torch.Tensor,
    target: float,
    batch_size: int,
    miss_probability: float,
    draw: torch.Generator,
) -> EarlyRejection:
    """Test a model until it is clear that it has not reached a target, or on all samples.

    Args:
        evaluate: returns the model's results on samples (int64 ``[n]``, their indices).
        indices: numbers of all n samples, int64 ``[n]``.
        target: accuracy. Above 1 it cannot be reached: the model is rejected after the first batch, whose accuracy is
            an estimate.
        batch_size: the numbers of drawn samples are multiples of it, except for the last.
        miss_probability: δ, the probability of rejecting a model that has reached the target.
        draw: draws the order of the samples.
    """
    total, required = len(indices), needed(target, len(indices))
    order = torch.randperm(total, generator=draw)
    ends = list(rejection_points(total, batch_size))
    parts: list[SampleResults] = []
    correct = 0
    for begin, end in pairwise([0, *ends]):
        results = evaluate(indices[order[begin:end]])
        parts.append(results)
        correct += int(results.scores.sum())
        if end < total and lower_tail(correct, end, required, total) <= miss_probability / len(ends):
            return EarlyRejection(None, correct, end)
    merged, places = joined(parts), order.argsort()
    return EarlyRejection(
        SampleResults(merged.losses[places], merged.predictions[places], merged.targets[places], merged.task),
        correct,
        total,
    )


def rejection_points(total: int, batch_size: int) -> Iterator[int]:
    """The numbers of samples after which a model is tested: ascending, up to ``total``."""
    end = 0
    while end < total:
        end = min(total, max(end + batch_size, math.ceil(end * GROWTH / batch_size) * batch_size))
        yield end


def needed(target: float, total: int) -> int:
    """The least number of correct samples out of ``total`` whose share, as a float, is at least the target."""
    least = max(0, math.ceil(target * total) - 1) if target <= 1 else total + 1
    while least <= total and least / total < target:
        least += 1
    return least


def lower_tail(correct: int, drawn: int, right: int, total: int) -> float:
    """The hypergeometric lower tail: the probability that at most ``correct`` of the drawn samples are correct.

    It is exactly 0 if this is impossible, as for ``right`` > ``total``. It is 1 if ``correct`` is the expected number
    or more: the tail is then about 0.5 or more and not needed. Otherwise it is exact up to rounding.

    Args:
        correct: number of correct samples among the drawn ones.
        drawn: number of drawn samples.
        right: number of correct samples among all of them.
        total: number of samples.
    """
    wrong = total - right
    if right > total or drawn - correct > wrong:
        return 0.0
    if correct * total >= right * drawn:
        return 1.0

    def ways(chosen: int, out_of: int) -> float:
        return math.lgamma(out_of + 1) - math.lgamma(chosen + 1) - math.lgamma(out_of - chosen + 1)

    term = math.exp(ways(correct, right) + ways(drawn - correct, wrong) - ways(drawn, total))
    tail, successes = term, correct
    while successes > 0 and drawn - successes < wrong and term > tail * 1e-17:
        term *= successes * (wrong - drawn + successes) / ((right - successes + 1) * (drawn - successes + 1))
        tail += term
        successes -= 1
    return max(tail, sys.float_info.min)  # a smaller tail is still not zero
