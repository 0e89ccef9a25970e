"""Whether a model may have reached a target accuracy, judged on no more test samples than that takes.

The samples are drawn without replacement, in a fresh random order, in growing batches. After each it is asked how
probable it is that a model which has reached the target, and so has at least K of all n samples right, shows so few
right ones among the m drawn so far: the lower tail of the hypergeometric distribution, exactly, not an approximation.
It falls as K grows, so that K itself is the case to judge by. If the probability is at most δ, divided by the number of
times that may be asked, the target is given up for this model, which is wrong with a probability of at most δ.

Over a run these probabilities do not add up: its rounds to a target are wrong only if that one round's model is given
up which is the first to reach it. Those before have not reached it, and are tested fully if not given up. So δ bounds
the probability that a run's rounds to a target are wrong, however many rounds it evaluates; with δ = 10⁻⁶, that any of
a thousand runs has a wrong one is at most 10⁻³ likely.

The tail is zero only where even a model that is right on all the rest would miss the target. With δ = 0, a model is
given up in no other case, which never errs. A model that is not given up has been tested on all samples in the end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from fedrun.models.inference import SampleResults, joined

GROWTH = 1.25
"""By which factor the number of samples grows from one judgement to the next, at least."""


@dataclass(frozen=True)
class Screening:
    """What came of a model.

    Attributes:
        results: on all samples, in their order; None where the model was given up before.
        correct: right ones among the samples that were drawn.
        drawn: m.
    """

    results: SampleResults | None
    correct: int
    drawn: int


def screened(
    evaluate: Callable[[torch.Tensor], SampleResults],
    indices: torch.Tensor,
    target: float,
    batch_size: int,
    miss_probability: float,
    draw: torch.Generator,
) -> Screening:
    """Test a model until it is clear that it has not reached a target, or to the end.

    Args:
        evaluate: gives its results on sample numbers.
        indices: of all n samples, int64 ``[n]``.
        target: accuracy; one above 1 is out of reach, so that the first batch is the last, and its share of right
            samples an estimate.
        batch_size: the numbers of samples drawn are multiples of it, but for the last.
        miss_probability: δ, of giving up a model that has reached the target.
        draw: draws the order of the samples.
    """
    total, least = len(indices), needed(target, len(indices))
    order = torch.randperm(total, generator=draw)
    ends = list(judgements(total, batch_size))
    parts: list[SampleResults] = []
    correct = begun = 0
    for end in ends:
        found = evaluate(indices[order[begun:end]])
        parts.append(found)
        correct += int((found.predictions == found.targets).sum())
        begun = end
        if end < total and lower_tail(correct, end, least, total) <= miss_probability / len(ends):
            return Screening(None, correct, end)
    results, places = joined(parts), order.argsort()
    return Screening(
        SampleResults(results.losses[places], results.predictions[places], results.targets[places]), correct, total
    )


def judgements(total: int, batch_size: int) -> Iterator[int]:
    """After how many samples a model is judged: ascending, the last time after all of them."""
    end = 0
    while end < total:
        end = min(total, max(end + batch_size, math.ceil(end * GROWTH / batch_size) * batch_size))
        yield end


def needed(target: float, total: int) -> int:
    """The least number of right samples out of so many whose share, a float, is at least the target."""
    least = max(0, math.ceil(target * total) - 1) if target <= 1 else total + 1
    while least <= total and least / total < target:
        least += 1
    return least


def lower_tail(correct: int, drawn: int, right: int, total: int) -> float:
    """The probability that at most so many of the samples drawn are right, out of a total of which some number is.

    Zero exactly where that cannot be, as for ``right`` > ``total``. One where as many are right as one would expect, or
    more: there the tail, about a half or more, is of no interest. Otherwise up to rounding.
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
    return max(tail, sys.float_info.min)  # below that it is still not zero
