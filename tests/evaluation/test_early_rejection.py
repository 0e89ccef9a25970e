"""Adaptive evaluation: tails of the hypergeometric distribution, and what is given up when."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb

import pytest
import torch

from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.evaluation import early_rejection as rejection
from fedrun.evaluation.early_rejection import evaluate_until_rejected, lower_tail, needed, rejection_points


def test_the_tail_is_that_of_drawing_without_replacement():
    """Counted out: Σ_i (right over i) (wrong over m − i) / (all over m)."""
    draw = random.Random(3)
    for _ in range(300):
        total = draw.randint(1, 120)
        right, drawn = draw.randint(0, total), draw.randint(1, total)
        correct = draw.randint(0, drawn)
        ways = sum(comb(right, hits) * comb(total - right, drawn - hits) for hits in range(correct + 1))
        exact = Fraction(ways, comb(total, drawn))
        found = lower_tail(correct, drawn, right, total)
        if Fraction(correct, drawn) >= Fraction(right, total):
            assert found == (1.0 if exact else 0.0) or drawn == total
        else:
            assert found == pytest.approx(float(exact), rel=1e-9)
            assert (found == 0) == (ways == 0)


def test_a_tail_too_small_for_a_float_is_not_zero():
    assert 0 < lower_tail(100, 5000, 56_000, 80_000) < 1e-300
    assert lower_tail(5000 - 24_001, 5000, 56_000, 80_000) == 0.0


@pytest.mark.parametrize("total", [1, 3, 10, 359, 1000])
def test_what_a_target_needs(total):
    for target in (0.001, 0.1, 0.3, 0.7, 0.9, 0.975, 1.0):
        assert needed(target, total) == next(count for count in range(total + 1) if count / total >= target)
    assert needed(float("inf"), total) == total + 1


def test_rejection_points_grow_in_whole_batches():
    assert list(rejection_points(100, 10)) == [10, 20, 30, 40, 50, 70, 90, 100]
    assert list(rejection_points(7, 10)) == [7]


class Model:
    """Is right on the first ``right`` of its samples; remembers which it was asked for."""

    def __init__(self, right: int) -> None:
        self.right = right
        self.asked: list[int] = []

    def __call__(self, indices: torch.Tensor) -> SampleResults:
        self.asked += indices.tolist()
        return SampleResults(indices.float(), (indices < self.right).long(), torch.ones_like(indices), CLASSIFICATION)


def screen(model: Model, total: int, target: float, miss: float, seed: int = 0):
    return evaluate_until_rejected(model, torch.arange(total), target, 10, miss, torch.Generator().manual_seed(seed))


def test_a_model_is_given_up_as_soon_as_it_cannot_reach_the_target():
    """Right on nothing, a target of 0.7: 30 of 100 may be wrong, and the 40th is the first judgement beyond them."""
    model = Model(0)
    found = screen(model, 100, 0.7, miss=0.0)
    assert (found.results, found.correct, found.drawn) == (None, 0, 40)
    assert len(set(model.asked)) == 40


def test_a_model_that_is_not_given_up_is_tested_fully_in_order():
    model = Model(70)
    found = screen(model, 100, 0.7, miss=1e-9)
    assert found.results is not None and (found.correct, found.drawn) == (70, 100)
    assert found.results.losses.tolist() == list(range(100))
    assert found.results.predictions.tolist() == [1] * 70 + [0] * 30
    assert sorted(model.asked) == list(range(100))
    assert model.asked != sorted(model.asked)


def test_one_that_misses_by_a_sample_is_never_taken_for_one_that_reaches():
    for seed in range(20):
        found = screen(Model(699), 1000, 0.7, miss=1e-9, seed=seed)
        assert found.results is None or int(found.results.predictions.sum()) == 699


def test_how_often_a_model_that_has_just_reached_the_target_is_given_up():
    """At most δ: 400 draws with δ = 0.01 are expected to give up 4 at most; 12 or more have a chance of 0.001."""
    lost = sum(screen(Model(140), 200, 0.7, miss=0.01, seed=seed).results is None for seed in range(400))
    assert lost < 12
    assert not any(screen(Model(140), 200, 0.7, miss=0.0, seed=seed).results is None for seed in range(100))


def test_far_models_cost_little():
    """20 points below the target, 20 000 samples: under a tenth of them, on average over ten draws."""
    drawn = [screen(Model(10_000), 20_000, 0.7, miss=1e-9, seed=seed).drawn for seed in range(10)]
    assert sum(drawn) / len(drawn) < 500


def test_nothing_left_to_reach_takes_one_batch():
    assert screen(Model(100), 100, float("inf"), miss=1e-9).drawn == 10


def test_rejection_points_share_the_probability_of_an_error(monkeypatch):
    # 8 tests of 100 samples in batches of 10, so that each may err with 0.08 / 8 = 0.01
    for tail, drawn in ((0.0101, 100), (0.0099, 10)):
        monkeypatch.setattr(rejection, "lower_tail", lambda *_, tail=tail: tail)
        assert screen(Model(0), 100, 0.7, miss=0.08).drawn == drawn
