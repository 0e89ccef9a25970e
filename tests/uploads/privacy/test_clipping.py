"""Clipping bounds by hand, and the property they are there for."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrun.uploads.privacy.clipping import clip, clip_factor, joint_norm, layer_bounds
from fedrun.uploads.privacy.user_level_adaptive import LARGEST_BOUND, SMALLEST_BOUND, next_bound, update_noise
from fedrun.uploads.transform import Shape


def clipped(vector: list[float], bound: float) -> list[float]:
    vectors = torch.tensor(vector)
    return (vectors * clip_factor(joint_norm([vectors]), bound)).tolist()


@pytest.mark.parametrize(
    ("vector", "expected"),
    [([3.0, 4.0], [0.6, 0.8]), ([0.3, -0.4], [0.3, -0.4]), ([-1.0, 0.0], [-1.0, 0.0]), ([0.0, 0.0], [0.0, 0.0])],
)
def test_by_hand(vector, expected):
    assert clipped(vector, 1.0) == pytest.approx(expected)


def test_two_vectors_have_one_norm():
    assert joint_norm([torch.tensor([3.0, 0.0]), torch.tensor([4.0])]).item() == 5.0


def test_layers():
    assert layer_bounds(1.0, [1, 3], by_size=False) == pytest.approx([0.7071068, 0.7071068])
    assert layer_bounds(2.0, [1, 3], by_size=True) == pytest.approx([1.0, math.sqrt(3)])


@pytest.mark.parametrize(
    ("layers", "vector", "expected"),
    [
        ("flat", [2.0, 0.0, 0.0, 0.0], None),
        ("flat", [0.0, 0.0, 3.0, 4.0], [0, 0, 1.2, 1.6]),
        ("equal", [1.0, 1.0, 0.0, -1.0], None),
        ("equal", [-1.0, 3.0, 0.0, 4.0], [-1, 0.6 * 2**0.5, 0, 0.8 * 2**0.5]),
        ("by_size", [1.0, 1.0, 1.0, 0.9], None),
        ("by_size", [2.0, 3.0, 0.0, 0.0], [1, 3**0.5, 0, 0]),
    ],
)
def test_tensors_of_one_and_three_entries(layers, vector, expected):
    """S = 2: for all entries, √2 for each tensor, or 1 and √3; None: nothing is longer."""
    uploads = {"model": torch.tensor(vector)}
    assert clip(uploads, 2.0, layers, {"model": Shape((1, 3), 0)}) == (expected is not None)
    assert uploads["model"].tolist() == pytest.approx(expected or vector)


@pytest.mark.parametrize(
    ("model", "control", "longer"), [(5.0, 0.5, True), (0.7, 12.0, True), (5.0, 12.0, True), (0.7, 0.5, False)]
)
def test_either_of_two_uploads_may_be_longer(model, control, longer):
    """S = 1 and s = 0.36: 0.8 for the model, 0.6 for the control variate."""
    uploads = {"model": torch.tensor([model]), "control": torch.tensor([control])}
    assert clip(uploads, 1.0, "flat", dict.fromkeys(uploads, Shape((1,), 0)), 0.36) == longer
    assert [uploads[name].item() for name in uploads] == pytest.approx([min(model, 0.8), min(control, 0.6)])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_no_clipped_vector_is_longer_than_the_bound(vector, bound):
    assert math.hypot(*clipped(vector, bound)) <= bound * (1 + 1e-5)


def test_the_noise_of_two_releases():
    assert update_noise(1.0, 5.0) == pytest.approx(1.0050378)
    assert update_noise(1.0, 2.5) == pytest.approx(1.0206207)
    assert update_noise(0.0, 2.5) == 0.0
    assert update_noise(1e-200, 2.5) == 1e-200


def test_a_bound_that_follows_the_norms():
    """Half of the five norms lie below 0.9: the bound rises to it, and falls where more than half are unclipped."""
    assert next_bound(1.0, 0.6, 0.5, 0.2) == pytest.approx(0.9801987)
    assert next_bound(1.0, 0.64, 0.5, 0.2) == pytest.approx(0.9723884)
    bound, bounds = 0.1, {}
    for round in range(1, 61):
        share = sum(norm <= bound for norm in (0.2, 0.5, 1.5, 3.0, 0.9)) / 5
        bounds[round] = bound = next_bound(bound, share, 0.5, 0.2)
    expected = [0.110517, 0.122140, 0.241090, 0.439295, 0.738906, 0.902501]
    assert [bounds[round] for round in (1, 2, 10, 20, 40, 60)] == pytest.approx(expected, rel=1e-5)


def test_a_bound_overflows_in_no_number_of_rounds():
    """Shares of -1e30 and 1e30 are noise on a small cohort's count."""
    for share, end in ((0.0, LARGEST_BOUND), (-1e30, LARGEST_BOUND), (1.0, SMALLEST_BOUND), (1e30, SMALLEST_BOUND)):
        bound = 1.0
        for _ in range(10):
            bound = next_bound(bound, share, 0.5, 10.0)
        assert bound == end
    assert next_bound(1e30, 0.5, 0.5, 10.0) == LARGEST_BOUND  # as the first bound may be
