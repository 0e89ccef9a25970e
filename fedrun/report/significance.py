"""Is a setting really better than the baseline? Paired tests over common seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from fedrun.report.quantities import Quantity
from fedrun.report.settings import Setting

Test = Literal["t", "wilcoxon"]

NAMES: Mapping[Test, str] = {"t": "paired t-test", "wilcoxon": "Wilcoxon signed-rank test"}

DIGITS = 13
"""Of the larger of two values that count in their difference; floats have between 15 and 16."""

TOO_FEW = "there are fewer than 2 common seeds with a value in both"


@dataclass(frozen=True)
class Comparison:
    """A setting against a baseline.

    Attributes:
        seeds: common to both and with a value in both.
        difference: mean over these seeds of the setting's value minus the baseline's; None without a seed.
        p: two-sided; None where it cannot be computed.
        reason: why there is no p; empty where there is one.
    """

    seeds: tuple[int, ...]
    difference: float | None
    p: float | None
    reason: str


def compare(setting: Setting, baseline: Setting, quantity: Quantity, test: Test) -> Comparison:
    """A paired test of one quantity over the seeds that complete runs of both settings have in common."""
    ours, theirs = (
        {run.seed: quantity.of(run) for run in one.complete if quantity.known(run)} for one in (setting, baseline)
    )
    pairs = {
        seed: (value, other)
        for seed, value in sorted(ours.items())
        if value is not None and (other := theirs.get(seed)) is not None
    }
    seeds, differences = tuple(pairs), exact_differences(pairs.values())
    mean = math.fsum(differences) / len(differences) if differences else None
    if len(differences) < 2:
        return Comparison(seeds, mean, None, TOO_FEW)
    if not any(differences):
        return Comparison(seeds, mean, None, "both are equal on every seed")
    if max(differences) == min(differences) and test == "t":
        return Comparison(seeds, mean, None, "the difference is the same on every seed")
    return Comparison(seeds, mean, _p(differences, test), "")


def exact_differences(pairs: Iterable[tuple[float, float]]) -> list[float]:
    """Each value minus the other, without the rounding error of the subtraction.

    0.8 − 0.7 and 0.5 − 0.4 are both 0.1, but differ in the last bits as floats: to a t-test a spread so small, and
    hence a p near 0, and to Wilcoxon's test two ranks instead of a tie.
    """
    return [round(value - other, DIGITS - _exponent(max(abs(value), abs(other)))) for value, other in pairs]


def _exponent(number: float) -> int:
    """Of the power of ten below which a number lies: 0 for 0.9, 2 for 12."""
    return math.ceil(math.log10(number)) if number else 0


def _p(differences: list[float], test: Test) -> float:
    """Two-sided p-value of differences of which not all are zero."""
    from scipy import stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of small samples: the report says how many seeds there are
        if test == "t":
            return float(stats.ttest_1samp(differences, 0.0).pvalue)
        return float(stats.wilcoxon(differences).pvalue)


def smallest_p(seeds: int) -> float:
    """The least two-sided p that Wilcoxon's test can give for so many seeds: all differences of one sign."""
    return float(2.0 ** (1 - seeds))
