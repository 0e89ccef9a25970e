"""Numbers to predict: losses by hand, metrics against scikit-learn."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics

from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.regression import Regression
from fedrun.system.errors import InputError

TASK = Regression(mean=(10.0, -1.0), std=(2.0, 4.0))


def test_outputs_are_in_units_of_the_targets_spread() -> None:
    outputs, targets = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[12.0, -1.0], [16.0, -1.0]])
    assert TASK.loss(outputs, targets).tolist() == [0, (9 + 4) / 2]
    predictions = TASK.predictions(outputs)
    assert predictions.tolist() == [[12, -1], [10, 7]]
    assert TASK.scores(predictions, targets).tolist() == [0, 7]
    assert TASK.mean_loss(outputs, targets).item() == 3.25


def test_metrics_are_those_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(0)
    targets = torch.randn(50, 2, generator=draw) * 3 + 5
    predictions = targets + torch.randn(50, 2, generator=draw)
    found = SampleResults(torch.zeros(50), predictions, targets, TASK).metrics(2)
    assert found["mae"] == pytest.approx(sklearn_metrics.mean_absolute_error(targets, predictions))
    assert found["rmse"] == pytest.approx(sklearn_metrics.root_mean_squared_error(targets, predictions))
    assert found["r2"] == pytest.approx(sklearn_metrics.r2_score(targets, predictions), rel=1e-5)


def test_r2_of_targets_that_do_not_vary_is_unknown() -> None:
    ones = torch.ones(3, 1)
    assert math.isnan(SampleResults(torch.zeros(3), ones, ones, Regression()).metrics(1)["r2"])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.zeros(3), r"t: targets \[3\]; allowed: numbers \[n, 1\]"),
        (torch.zeros(3, 2), r"t: targets \[3, 2\]; allowed: numbers \[n, 1\]"),
        (torch.zeros(3, 1, dtype=torch.int64), "t: targets of torch.int64, or not finite"),
        (torch.tensor([[math.nan]]), "t: targets of torch.float32, or not finite"),
    ],
)
def test_targets_that_are_no_numbers(targets: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Regression().check_targets(targets, 1, "t")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Regression(mean=(0.0, 1.0, 2.0)), "^t: the mean of Regression has 3 numbers; allowed: 1 or 2$"),
        (Regression(std=()), "^t: the std of Regression has 0 numbers; allowed: 1 or 2$"),
        (Regression(std=(1.0, 0.0)), r"^t: Regression\(.*std=\(1.0, 0.0\)\); allowed: .* every std above 0$"),
        (Regression(mean=(math.nan,)), r"^t: Regression\(mean=\(nan,\), .*\); allowed: finite numbers"),
    ],
)
def test_scales_that_do_not_fit_the_targets(task: Regression, message: str) -> None:
    with pytest.raises(InputError, match=message):
        task.check_targets(torch.zeros(3, 2), 2, "t")
    TASK.check_targets(torch.zeros(3, 2), 2, "t")
