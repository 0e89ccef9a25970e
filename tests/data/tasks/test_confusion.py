import math

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics

from fedrun.data.tasks.confusion import accuracy, confusion_matrix, macro_f1, matthews


def test_worked_example():
    confusion = confusion_matrix(torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([0, 0, 1, 1, 1, 1]), 3)
    assert confusion.tolist() == [[2, 1, 0], [0, 2, 0], [0, 1, 0]]
    assert confusion.dtype == torch.int64
    assert accuracy(confusion) == pytest.approx(0.6666667, abs=1e-7)
    assert macro_f1(confusion) == pytest.approx(0.4888889, abs=1e-7)
    assert matthews(confusion) == pytest.approx(0.5330018, abs=1e-7)


def test_constant_prediction():
    confusion = confusion_matrix(torch.tensor([0, 0, 0, 1]), torch.zeros(4, dtype=torch.int64), 2)
    assert accuracy(confusion) == 0.75
    assert macro_f1(confusion) == pytest.approx(0.4285714, abs=1e-7)
    assert matthews(confusion) == 0


@pytest.mark.parametrize(("classes", "occurring", "samples"), [(2, 2, 50), (10, 10, 300), (62, 9, 40), (62, 62, 2000)])
def test_equals_scikit_learn(classes, occurring, samples):
    rng = np.random.default_rng(samples)
    targets, predictions = rng.integers(0, occurring, (2, samples))
    predictions = np.where(rng.random(samples) < 0.6, targets, predictions)
    confusion = confusion_matrix(torch.from_numpy(targets), torch.from_numpy(predictions), classes)
    assert accuracy(confusion) == pytest.approx(sklearn_metrics.accuracy_score(targets, predictions), abs=1e-12)
    assert macro_f1(confusion) == pytest.approx(
        sklearn_metrics.f1_score(targets, predictions, average="macro"), abs=1e-12
    )
    assert matthews(confusion) == pytest.approx(sklearn_metrics.matthews_corrcoef(targets, predictions), abs=1e-12)


def test_classes_in_the_predictions_only_count_in_macro_f1():
    # Class 0: F1 2/3, class 1: never true, F1 0; class 2 occurs nowhere.
    confusion = confusion_matrix(torch.tensor([0, 0]), torch.tensor([0, 1]), 3)
    assert macro_f1(confusion) == pytest.approx(1 / 3)


def test_matthews_of_many_samples_does_not_overflow():
    # The two-class formula (TP TN - FP FN) / sqrt(..) is scale-free.
    small = torch.tensor([[3, 1], [2, 4]])
    expected = (3 * 4 - 1 * 2) / math.sqrt(4 * 6 * 5 * 5)
    assert matthews(small) == pytest.approx(expected, abs=1e-15)
    assert matthews(small * 1_000_000) == pytest.approx(expected, abs=1e-15)


def test_perfect_and_empty():
    perfect = torch.diag(torch.tensor([5, 3, 2]))
    assert (accuracy(perfect), macro_f1(perfect), matthews(perfect)) == (1, 1, 1)
    empty = torch.zeros(3, 3, dtype=torch.int64)
    assert math.isnan(accuracy(empty)) and math.isnan(macro_f1(empty)) and matthews(empty) == 0
