"""Several labels per sample: metrics against scikit-learn."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics

from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.multi_label import MultiLabel, average_precision
from fedrun.system.errors import InputError

TASK = MultiLabel()


def test_the_loss_is_the_mean_binary_cross_entropy() -> None:
    outputs, targets = torch.tensor([[0.0, math.log(3)]]), torch.tensor([[1, 0]], dtype=torch.uint8)
    # −log σ(0) = log 2; −log(1 − σ(log 3)) = log 4
    assert TASK.loss(outputs, targets).item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert TASK.predictions(outputs).tolist() == [[0.5, pytest.approx(0.75)]]
    assert TASK.scores(torch.tensor([[0.6, 0.4], [0.6, 0.6]]), targets.expand(2, 2)).tolist() == [True, False]


def test_metrics_are_those_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(1)
    targets = (torch.rand(60, 4, generator=draw) < torch.tensor([0.1, 0.3, 0.5, 0.8])).to(torch.uint8)
    scores = (targets * 0.3 + torch.rand(60, 4, generator=draw) * 0.7).mul(20).round() / 20  # with ties
    found = SampleResults(torch.zeros(60), scores, targets, TASK).metrics(4)
    predicted = scores > 0.5
    assert found["map"] == pytest.approx(sklearn_metrics.average_precision_score(targets, scores, average="macro"))
    assert found["f1"] == pytest.approx(sklearn_metrics.f1_score(targets, predicted, average="macro"))
    assert found["subset_accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(targets, predicted))


def test_large_logits_stay_in_their_order() -> None:
    targets = torch.tensor([[1], [0], [1]], dtype=torch.uint8)
    predictions = TASK.predictions(torch.tensor([[30.0], [20.0], [19.0]]))
    found = SampleResults(torch.zeros(3), predictions, targets, TASK).metrics(1)
    # recall 1/2 at precision 1, recall 1 at precision 2/3
    assert found["map"] == pytest.approx(1 / 2 + 1 / 3)


def test_outputs_that_are_no_numbers_have_no_rank() -> None:
    for targets in ([True, False], [False, True]):
        assert math.isnan(average_precision(torch.tensor(targets), torch.full((2,), math.nan)))


def test_a_label_without_a_rank_is_not_left_out_of_the_mean() -> None:
    """The first label is ranked perfectly; that of the second is unknown, and so is their mean."""
    targets = torch.tensor([[1, 0], [0, 1]], dtype=torch.uint8)
    predictions = torch.tensor([[0.9, math.nan], [0.1, 0.8]], dtype=torch.float64)
    assert math.isnan(SampleResults(torch.zeros(2), predictions, targets, TASK).metrics(2)["map"])


def test_labels_that_no_sample_has_are_left_out() -> None:
    assert math.isnan(average_precision(torch.tensor([False, False]), torch.tensor([0.1, 0.9])))
    targets = torch.tensor([[1, 0], [0, 0]], dtype=torch.uint8)
    scores = torch.tensor([[0.9, 0.1], [0.2, 0.3]])
    assert SampleResults(torch.zeros(2), scores, targets, TASK).metrics(2) == {
        "loss": 0.0,
        "subset_accuracy": 1.0,
        "map": 1.0,
        "f1": 1.0,
    }


def test_targets_other_than_0_and_1() -> None:
    with pytest.raises(InputError, match="t: targets other than 0 and 1"):
        TASK.check_targets(torch.tensor([[0, 2]]), 2, "t")
    with pytest.raises(InputError, match=r"t: targets \[2\]; allowed: 0 or 1 for each label \[n, 2\]"):
        TASK.check_targets(torch.tensor([0, 1]), 2, "t")
