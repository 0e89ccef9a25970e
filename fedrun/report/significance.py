"""Paired tests over common seeds, of whether a setting differs from the baseline."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fedrun.report.quantities import TO_TARGET, Quantity
from fedrun.report.settings import Setting
from fedrun.report.tested_models import tested_alike

Test = Literal["t", "wilcoxon"]

NAMES: Mapping[Test, str] = {"t": "paired t-test", "wilcoxon": "Wilcoxon signed-rank test"}

DIGITS = 13
"""Decimal digits of the larger of two values that count in their difference; floats have between 15 and 16."""

TOO_FEW = "there are fewer than 2 common seeds with a value in both"
UNLIKE = "the two are not tested alike"
CENSORED = "some common seed did not reach the target in both"


@dataclass(frozen=True)
class Comparison:
    """A setting against a baseline.

    Attributes:
        seeds: common to both and with a value in both.
        unequal: how many of them differ at all.
        difference: mean over these seeds of the setting's value minus the baseline's; None without a seed, and of
            rounds or virtual seconds to a target where some common seed did not reach it.
        p: two-sided; None if it cannot be computed.
        reason: why there is no p; empty if there is one.
    """

    seeds: tuple[int, ...]
    unequal: int
    difference: float | None
    p: float | None
    reason: str


def compare(setting: Setting, baseline: Setting, quantity: Quantity, test: Test) -> Comparison:
    """A paired test of one quantity over the seeds that complete runs of both settings have in common."""
    ours, theirs = (
        {run.seed: quantity.of(run) for run in one.complete if quantity.known(run)} for one in (setting, baseline)
    )
    common = {seed: (value, theirs[seed]) for seed, value in sorted(ours.items()) if seed in theirs}
    pairs = {seed: (one, other) for seed, (one, other) in common.items() if one is not None and other is not None}
    if quantity.kind in TO_TARGET and len(pairs) < len(common):
        return Comparison(tuple(pairs), 0, None, None, CENSORED)  # the mean of the others would be too good
    differences = exact_differences(pairs.values())
    mean = statistics.mean(differences) if differences else None

    def result(p: float | None, reason: str = "") -> Comparison:
        return Comparison(tuple(pairs), sum(map(bool, differences)), mean, p, reason)

    if not tested_alike(setting, baseline, quantity.metric):
        return result(None, UNLIKE)
    if len(differences) < 2:
        return result(None, TOO_FEW)
    if not any(differences):
        return result(None, "both are equal on every seed")
    if max(differences) == min(differences) and test == "t":
        return result(None, "the difference is the same on every seed")
    return result(_p(differences, test))


def exact_differences(pairs: Iterable[tuple[float, float]]) -> list[float]:
    """Each value minus the other, without the rounding error of the subtraction.

    0.8 − 0.7 and 0.5 − 0.4 are both 0.1, but differ in the last bits as floats: to a t-test a spread so small, and
    hence a p near 0, and to Wilcoxon's test two ranks instead of a tie.
    """
    return [round(value - other, DIGITS - _exponent(max(abs(value), abs(other)))) for value, other in pairs]


def _exponent(number: float) -> int:
    """The exponent of the power of ten below which a number lies: 0 for 0.9, 2 for 12."""
    return math.ceil(math.log10(number)) if number else 0


def _p(differences: list[float], test: Test) -> float:
    """Two-sided p-value of differences of which not all are zero."""
    from scipy import stats

    if test == "t":
        return float(stats.ttest_1samp(differences, 0.0).pvalue)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of small samples: the report says how many seeds there are
        # zeros are left out, as Wilcoxon does; scipy would take them for a reason to approximate
        return float(stats.wilcoxon([difference for difference in differences if difference]).pvalue)


def smallest_p(differing: int) -> float:
    """The least two-sided p that Wilcoxon's test can give where so many seeds differ at all: all in one direction."""
    return float(2.0 ** (1 - differing))
