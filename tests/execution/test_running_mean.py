"""The running mean against the mean in float64."""

from __future__ import annotations

import pytest
import torch

from fedrun.execution.running_mean import BLOCK, RunningMean


def running_mean(vectors: list[torch.Tensor], weights: list[float]) -> torch.Tensor:
    mean = RunningMean()
    for vector, weight in zip(vectors, weights, strict=True):
        mean.add(vector, weight)
    return mean.result()


@pytest.mark.parametrize("count", [1, 2, BLOCK, BLOCK + 1, BLOCK**2, BLOCK**2 + BLOCK + 1])
def test_it_is_the_weighted_mean(count):
    draw = torch.Generator().manual_seed(count)
    vectors, weights = torch.randn(count, 3, generator=draw), torch.rand(count, generator=draw).double()
    expected = (weights / weights.sum()) @ vectors.double()
    mean = running_mean(list(vectors), weights.tolist())
    torch.testing.assert_close(mean, expected.float(), rtol=1e-5, atol=1e-6)


def test_until_a_vector_has_a_weight_all_count_alike():
    vectors = [torch.tensor([float(k)]) for k in range(2 * BLOCK + 3)]
    weightless = [0.0] * len(vectors)
    assert running_mean(vectors, weightless).item() == pytest.approx((len(vectors) - 1) / 2)
    assert running_mean(vectors, [*weightless[1:], 2.0]).item() == len(vectors) - 1


def test_thousands_of_small_displacements_keep_their_digits():
    """One mean of all is off by 1 % here, because each of its steps rounds to the digits of a weight."""
    draw = torch.Generator().manual_seed(0)
    x = 0.1 * torch.randn(100, generator=draw)
    vectors = [x + 1e-5 * (1 + torch.randn(100, generator=draw)) for _ in range(6000)]
    exact = torch.stack(vectors).double().mean(0) - x.double()
    moved = running_mean(vectors, [5.0] * len(vectors)).double() - x.double()
    assert (moved - exact).norm() / exact.norm() < 1e-3  # a rounding of x + displacement: 4e-8 · |x| / 1e-5


def test_what_no_vector_changes_keeps_its_exact_value():
    vectors, weights = [torch.tensor([0.1, 1 / 3])] * (BLOCK**2 + 7), [1 / (k + 3) for k in range(BLOCK**2 + 7)]
    assert torch.equal(running_mean(vectors, weights), vectors[0])


def test_vectors_and_the_result_do_not_share_memory():
    vectors = [torch.zeros(2), torch.ones(2)]
    running_mean(vectors, [1.0, 1.0]).add_(7)
    assert torch.equal(vectors[0], torch.zeros(2))


def test_the_mean_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no vector"):
        RunningMean().result()
