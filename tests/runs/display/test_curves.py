import math

import numpy as np
import pytest

from fedrun.runs.display.curves import curve, spent


def rows(**values):
    return [{"round": int(name[1:]), "test/loss": value} for name, value in values.items()]


def test_a_curve_is_the_mean_and_the_std_with_ddof_0_over_seeds():
    found = curve([rows(r0=1.0, r5=2.0), rows(r0=3.0, r5=2.0)], "test/loss")
    assert found.rounds.tolist() == [0, 5]
    assert found.mean.tolist() == [2.0, 2.0]
    assert found.std.tolist() == [1.0, 0.0]


def test_a_curve_has_a_gap_where_a_seed_has_no_finite_value():
    seeds = [rows(r0=1.0, r1=math.nan, r2=3.0, r3=4.0), rows(r0=1.0, r1=2.0, r2=5.0)]
    found = curve(seeds, "test/loss")
    assert found.rounds.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(found.mean, [1.0, math.nan, 4.0, math.nan])
    np.testing.assert_array_equal(found.std, [0.0, math.nan, 1.0, math.nan])


@pytest.mark.filterwarnings("error")
def test_a_curve_has_a_gap_where_the_sum_of_the_values_is_no_float():
    found = curve([rows(r0=1.7e308, r1=1.0), rows(r0=1.7e308, r1=3.0)], "test/loss")
    np.testing.assert_array_equal(found.mean, [math.nan, 2.0])
    np.testing.assert_array_equal(found.std, [math.nan, 1.0])
    for value in (1.7e308, -1.7e308):
        assert curve([rows(r0=value), rows(r0=value)], "test/loss") is None


def test_an_estimate_stands_where_an_adaptive_evaluation_stopped_early():
    full = {"test/accuracy": 0.7, "test/f1": 0.6}
    early = [{"round": n, "test/accuracy_estimate": 0.1 * n, "test/evaluated": 256.0} for n in range(3)]
    one, other = [*early, {"round": 3, **full}], [*early[:2], {"round": 2, **full}, {"round": 3, **full}]
    accuracies = curve([one, other], "test/accuracy")
    assert accuracies.rounds.tolist() == [0, 1, 2, 3] and accuracies.estimated
    np.testing.assert_allclose(accuracies.mean, [0.0, 0.1, 0.45, 0.7])
    # One seed's round 2 has no F1: no gap, as nothing is wrong there, and no mean of the other alone.
    f1 = curve([one, other], "test/f1")
    assert (f1.rounds.tolist(), f1.mean.tolist(), f1.estimated) == ([3], [0.6], False)
    assert curve([other], "test/f1").rounds.tolist() == [2, 3]
    assert not curve([[{"round": 0, **full}]], "test/accuracy").estimated


def test_no_curve_without_finite_values():
    assert curve([rows(r0=math.nan, r1=math.inf, r2=None)], "test/loss") is None
    assert curve([[]], "test/loss") is None
    assert curve([], "test/loss") is None


COSTS = ("cost/params_up", "cost/params_down", "cost/client_samples")


def costly(number, up, down, samples, seconds, value=0.5):
    return {
        "round": number,
        "test/f1": value,
        **dict(zip(COSTS, (up, down, samples), strict=True)),
        "time/round_s": seconds,
    }


def test_what_the_rounds_cost():
    # Evaluated every other round: rounds 1 and 2 are taken to have lasted 0.5 s each, 3 and 4 1 s each, 5 2 s.
    found = [costly(0, 0, 0, 0, None), costly(2, 10, 20, 7, 0.5), costly(4, 20, 40, 9, 1.0), costly(5, 25, 50, 10, 2.0)]
    assert spent(found, "rounds") == [0, 2, 4, 5]
    assert spent(found, "params") == [0, 30, 60, 75]
    assert spent(found, "samples") == [0, 7, 9, 10]
    assert spent(found, "seconds") == [0, 1, 3, 5]


@pytest.mark.parametrize(
    ("losses", "places"),
    [
        pytest.param([0.0, 0.5, 0.7], [0.0, 0.5, 0.7], id="noise"),
        pytest.param([0.0, None, None], [math.nan] * 3, id="without-noise-epsilon-is-infinite"),
    ],
)
def test_a_run_without_noise_has_no_place_on_the_axis_of_epsilon(losses, places):
    found = [{"round": round, "privacy/epsilon": loss} for round, loss in enumerate(losses)]
    np.testing.assert_array_equal(spent(found, "epsilon"), places)


def test_a_curve_against_a_cost_stands_at_the_seeds_mean_cost():
    seeds = [
        [costly(0, 0, 0, 0, None, 0.1), costly(1, 1, 1, 10, 1.0, 0.4)],
        [costly(0, 0, 0, 0, None, 0.3), costly(1, 1, 1, 30, 3.0, 0.8), costly(2, 2, 2, 60, 1.0, 0.9)],
    ]
    found = curve(seeds, "test/f1", "samples")
    np.testing.assert_array_equal(found.x, [0, 20, math.nan])
    np.testing.assert_allclose(found.mean, [0.2, 0.6, math.nan])
    np.testing.assert_allclose(found.std, [0.1, 0.2, math.nan])
    assert curve(seeds, "test/f1", "seconds").x[1] == 2.0


def test_no_curve_against_what_was_not_recorded():
    assert curve([[{"round": 0, "test/f1": 0.5}]], "test/f1", "params") is None
