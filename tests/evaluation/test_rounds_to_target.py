import math

import pytest

from fedrun.data.targets import Target
from fedrun.evaluation.rounds_to_target import describe, first_hit, interpolated

ROUNDS = [1, 2, 3, 4, 5]
ACCURACIES = [0.10, 0.50, 0.72, 0.69, 0.80]


def at(accuracy: float) -> Target:
    return Target.of(accuracy)


def test_less_is_better():
    perplexities, goal = [90.0, 60.0, 50.0, 55.0, 30.0], Target.of("test/perplexity:40")
    assert first_hit([0, 1, 2, 3, 4], perplexities, goal) == 4
    # the least so far is 50, in round 2, and still counts in round 3; half of the way from 50 to 30 is 40
    assert interpolated([0, 1, 2, 3, 4], perplexities, goal) == pytest.approx(3.5)
    assert first_hit([0, 1], [30.0, 41.0], goal) is None


def test_worked_example():
    assert first_hit(ROUNDS, ACCURACIES, at(0.70)) == 3
    assert interpolated(ROUNDS, ACCURACIES, at(0.70)) == pytest.approx(2.909, abs=5e-4)


def test_equality_is_a_hit():
    assert first_hit(ROUNDS, ACCURACIES, at(0.72)) == 3
    assert interpolated(ROUNDS, ACCURACIES, at(0.72)) == pytest.approx(3)


def test_interpolation_starts_from_the_running_maximum():
    # The maximum 0.5 of round 2 still holds in round 3; a third of the way from 0.5 to 0.8 is 0.6.
    assert interpolated([1, 2, 3, 4], [0.1, 0.5, 0.2, 0.8], at(0.6)) == pytest.approx(3 + 1 / 3)


def test_not_reached():
    assert first_hit(ROUNDS, ACCURACIES, at(0.81)) is None
    assert interpolated(ROUNDS, ACCURACIES, at(0.81)) is None
    assert first_hit([], [], at(0.5)) is None
    assert interpolated([], [], at(0.5)) is None


def test_the_initial_model_does_not_count():
    assert first_hit([0, 1, 2], [0.9, 0.3, 0.8], at(0.7)) == 2
    assert interpolated([0, 1, 2], [0.9, 0.3, 0.8], at(0.7)) == pytest.approx(1.8)
    assert first_hit([0], [0.9], at(0.7)) is None
    assert interpolated([0], [0.9], at(0.7)) is None


def test_rounds_evaluated_only_now_and_then():
    assert first_hit([0, 10, 20], [0.1, 0.3, 0.7], at(0.5)) == 20
    assert interpolated([0, 10, 20], [0.1, 0.3, 0.7], at(0.5)) == pytest.approx(15)
    assert interpolated([0, 10, 20], [0.1, 0.3, 0.7], at(0.2)) == pytest.approx(5)
    assert interpolated([10, 20], [0.3, 0.7], at(0.2)) == 10


def test_a_diverged_round_reaches_nothing():
    assert first_hit([1, 2, 3], [math.nan, 0.2, 0.6], at(0.4)) == 3
    assert interpolated([1, 2, 3], [math.nan, 0.2, 0.6], at(0.4)) == pytest.approx(2.5)


def test_cells():
    # Mean 104, deviations -4, 0, 4 around it: sqrt(32 / 3) = 3.266.
    assert describe([100, 104, 108], 200) == "104.0 ± 3.3"
    assert describe([7], 200) == "7.0"
    assert describe([100, None, 108], 200) == ">200"
    assert describe([None], 150) == ">150"
    assert describe([], 200) == "-"
