import math

import pytest

from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.report.baselines import Baselines
from fedrun.report.comparison import difference_table, reported_quantities
from fedrun.report.quantities import Quantity
from fedrun.report.settings import settings
from fedrun.report.significance import CENSORED, TOO_FEW, _p, compare, exact_differences, smallest_p

from ..helpers.run_folders import rows

ACCURACY = Quantity("final", "test/accuracy")


def pair(folders, ours, baseline):
    """Settings whose seeds end with these accuracies (percent); the first one's are ours."""
    for seed, value in ours.items():
        folders.write(seed, rows(0.0, value / 100), changes={"local.lr": 0.5})
    for seed, value in baseline.items():
        folders.write(seed, rows(0.0, value / 100))
    found, _ = settings(folders.found.runs)
    return found[::-1]  # sorted, local.lr=0.5 is last


def test_paired_t(folders):
    # Differences 1, 2, 3: mean 2, std (ddof 1) 1, t = 2 sqrt(3). With 2 degrees of freedom p = 1 - t / sqrt(2 + t^2).
    result = compare(*pair(folders, {0: 51, 1: 62, 2: 73}, {2: 70, 1: 60, 0: 50, 7: 99}), ACCURACY, "t")
    assert result.seeds == (0, 1, 2)
    assert result.difference == pytest.approx(0.02)
    assert result.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_wilcoxon(folders):
    # All of 3 differences are positive: the most extreme of 8 sign patterns, two-sided.
    result = compare(*pair(folders, {0: 51, 1: 62, 2: 73}, {0: 50, 1: 60, 2: 70}), ACCURACY, "wilcoxon")
    assert result.p == pytest.approx(2 / 8) == smallest_p(3)


def test_wilcoxon_of_equal_differences(folders):
    """Three times the same difference: its spread of 0 is a t-test's problem only."""
    result = compare(*pair(folders, {0: 75, 1: 50, 2: 100}, {0: 50, 1: 25, 2: 75}), ACCURACY, "wilcoxon")
    assert (result.p, result.reason) == (pytest.approx(2 / 8), "")


@pytest.mark.parametrize(
    ("ours", "baseline", "seeds", "reason"),
    [
        ({0: 51}, {0: 50}, (0,), TOO_FEW),
        ({0: 51, 1: 52}, {2: 50, 3: 50}, (), TOO_FEW),
        ({0: 50, 1: 60}, {0: 50, 1: 60}, (0, 1), "both are equal on every seed"),
        ({0: 75, 1: 50}, {0: 50, 1: 25}, (0, 1), "the difference is the same on every seed"),
        # as floats, 0.8 - 0.7 > 0.1 > 0.5 - 0.4: a spread of 1e-16, whose t would be 1e15
        ({0: 80, 1: 50}, {0: 70, 1: 40}, (0, 1), "the difference is the same on every seed"),
    ],
)
def test_no_p_without_reason(folders, ours, baseline, seeds, reason):
    result = compare(*pair(folders, ours, baseline), ACCURACY, "t")
    assert (result.seeds, result.p, result.reason) == (seeds, None, reason)


def test_equal_differences_are_ties(folders):
    # Differences 0.1, 0.1, 0.1, -0.1, each up to a float's last bits: ranks all 2.5, so that the sum of the negative
    # ones is 2.5; of 16 sign patterns 1 + 4 have at most this on the negative side, 1 + 4 on the positive one.
    result = compare(*pair(folders, {0: 80, 1: 50, 2: 90, 3: 60}, {0: 70, 1: 40, 2: 80, 3: 70}), ACCURACY, "wilcoxon")
    assert result.p == pytest.approx(10 / 16)


def test_large_values_keep_their_digits():
    assert exact_differences([(123456789012.0, 123456789011.0), (0.0, 0.0), (1e-9, 0.0)]) == [1.0, 0.0, 1e-9]
    # 13 digits of the larger one: as floats the differences are off by 1e-13
    assert exact_differences([(1000.3, 0.1), (0.1, 1000.3), (-1000.3, -0.1)]) == [1000.2, -1000.2, -1000.2]


def test_rounds_are_compared_where_all_common_seeds_reached_the_target(folders):
    """One seed alone would say that both are equally fast, though the other never got there."""
    ours, theirs = pair(folders, {0: 80, 1: 60}, {0: 90, 1: 95})
    result = compare(ours, theirs, Quantity("rounds to", "0.7"), "t")
    assert (result.seeds, result.difference, result.p, result.reason) == ((0,), None, None, CENSORED)
    assert compare(theirs, ours, Quantity("rounds to", "0.7"), "t").reason == CENSORED
    assert compare(ours, theirs, Quantity("rounds to", "0.6"), "t").difference == 0


def test_a_metric_is_compared_where_both_have_it(folders):
    """Of seed 1 the baseline's model had diverged, of seed 2 the setting's: differences 0.01 and 0.03."""
    ours, theirs = {0: 51, 1: 60, 2: math.nan, 3: 73}, {0: 50, 1: math.nan, 2: 70, 3: 70}
    result = compare(*pair(folders, ours, theirs), ACCURACY, "t")
    assert (result.seeds, result.difference, result.reason) == ((0, 3), pytest.approx(0.02), "")


def test_virtual_seconds_are_compared_as_rounds_are(folders):
    """The setting reaches 70 % in round 1, after 10 and 14 s; the baseline after 20 and 30 s. Differences -10 and -16:
    t = -13 / 3 with one degree of freedom, whose two-sided p is 1 - 2 atan(13 / 3) / pi = 0.144.
    """
    for lr, times in ((0.5, (10.0, 14.0)), (0.1, (20.0, 30.0))):
        for seed, time in enumerate(times):
            content = [row | {VIRTUAL_SECONDS: time * row["round"]} for row in rows(0.1, 0.8)]
            folders.write(seed, content, changes={"local.lr": lr})
    baseline, ours = settings(folders.found.runs)[0]
    result = compare(ours, baseline, Quantity("seconds to", "0.70"), "t")
    assert (result.difference, result.p) == (-13.0, pytest.approx(1 - 2 * math.atan(13 / 3) / math.pi))
    assert compare(ours, baseline, Quantity("seconds to", "0.90"), "t").reason == CENSORED
    reported = reported_quantities([baseline, ours], ["test/accuracy"], [])
    table = difference_table([baseline, ours], Baselines("base", (baseline,)), reported, "t")
    assert table.header == ("setting", "test accuracy", "to 70 %", "seconds to 70 %")
    assert table.rows == (("local.lr=0.5", "+0.00 (p = -)", "+0 (p = -)", "-13 (p = 0.144)"),)


def test_wilcoxons_least_p_is_of_the_seeds_that_differ(folders):
    """Differences 0, 1, 2, 3, 4: the zero is dropped, and all of 4 signs are one of 2^4 patterns, two-sided 1/8."""
    ours, theirs = pair(folders, {seed: 50 + seed for seed in range(5)}, dict.fromkeys(range(5), 50))
    result = compare(ours, theirs, ACCURACY, "wilcoxon")
    assert (len(result.seeds), result.unequal) == (5, 4)
    assert result.p == pytest.approx(1 / 8) == smallest_p(result.unequal)


def test_an_equal_seed_beside_many_is_no_reason_to_approximate():
    """Of 14 seeds one is equal and 13 differ in one direction: p = 2^-12, as of these 13 alone."""
    differences = [0.01 * (number + 1) for number in range(13)]
    assert _p([*differences, 0.0], "wilcoxon") == pytest.approx(2**-12)


def test_adaptive_runs_tell_nothing_of_targets_they_did_not_look_for(folders):
    # they looked for 70 % only: of 65 % they know nothing, though they were tested fully in round 2
    for seed in (0, 1):
        folders.write(seed, rows(None, None, 0.8), changes={"evaluation": {"adaptive": True}})
        folders.write(seed, rows(0.1, 0.68), changes={"local.lr": 0.5})
    one, other = settings(folders.found.runs)[0]
    result = compare(one, other, Quantity("rounds to", "0.65"), "t")
    assert (result.seeds, result.difference, result.reason) == ((), None, TOO_FEW)


def test_a_difference_of_huge_values(folders):
    """1.7e308 on both seeds, 0 for the baseline; the sum of the differences is no float."""
    for lr, value in ((0.5, 1.7e308), (0.1, 0.0)):
        for seed in (0, 1):
            folders.write(seed, rows(0.1, 0.2, **{"test/perplexity": value}), changes={"local.lr": lr})
    baseline, ours = settings(folders.found.runs)[0]
    assert compare(ours, baseline, Quantity("final", "test/perplexity"), "t").difference == 1.7e308
