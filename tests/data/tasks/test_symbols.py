"""Classes of symbols: padding counts nowhere."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics

from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.symbols import IGNORED, LanguageModelling, TokenClassification
from fedrun.system.errors import InputError

TASK = LanguageModelling()
TARGETS = torch.tensor([[0, 1, IGNORED], [1, IGNORED, IGNORED], [IGNORED] * 3])


def test_means_are_over_the_symbols_that_count() -> None:
    outputs = torch.zeros(3, 3, 2)
    outputs[0, 0, 1] = math.log(3)  # P(0) = 1/4
    losses = TASK.loss(outputs, TARGETS)
    first = (math.log(4) + math.log(2)) / 2
    assert losses.tolist() == pytest.approx([first, math.log(2), 0])
    assert TASK.mean_loss(outputs, TARGETS).item() == pytest.approx((2 * first + math.log(2)) / 3)
    predictions = TASK.predictions(outputs)
    assert predictions.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert TASK.scores(torch.tensor([[0, 0, 0], [1, 1, 1], [0, 0, 0]]), TARGETS).tolist() == [0.5, 1, 0]


def test_outputs_may_lack_the_padding_at_the_end_of_a_batch() -> None:
    outputs = torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(TASK.loss(outputs[:, :2], TARGETS), TASK.loss(outputs, TARGETS))


def test_perplexity_is_the_exponential_of_the_mean_loss_of_a_symbol() -> None:
    losses = torch.tensor([math.log(2), math.log(16), 5.0])
    found = SampleResults(losses, torch.zeros_like(TARGETS), TARGETS, TASK).metrics(2)
    # two symbols of perplexity 2, one of 16, none in the third text: (2 · 2 · 16)^(1/3) = 4
    assert found["perplexity"] == pytest.approx(4)
    assert found["loss"] == pytest.approx(math.log(4))
    assert found["token_accuracy"] == pytest.approx(1 / 3)
    diverged = SampleResults(torch.full((3,), 800.0), torch.zeros_like(TARGETS), TARGETS, TASK)
    assert diverged.metrics(2)["perplexity"] == math.inf


@pytest.mark.parametrize("task", [TASK, TokenClassification()])
def test_token_accuracy_is_the_exact_share_of_the_symbols(task: TokenClassification) -> None:
    """The score of the first text, 7 of 10 symbols, is a little less than 0.7 as float32, which a target would miss."""
    targets = torch.zeros(2, 10, dtype=torch.int64)
    targets[1] = IGNORED
    predictions = torch.tensor([[0] * 7 + [1] * 3, [0] * 10])
    assert SampleResults(torch.zeros(2), predictions, targets, task).metrics(2)["token_accuracy"] == 0.7
    without = SampleResults(torch.zeros(1), predictions[1:], targets[1:], task).metrics(2)["token_accuracy"]
    assert math.isnan(without)


def test_macro_f1_over_symbols() -> None:
    draw = torch.Generator().manual_seed(2)
    targets, predictions = (torch.randint(0, 3, (20, 6), generator=draw) for _ in range(2))
    targets[:, 4:] = IGNORED
    found = SampleResults(torch.zeros(20), predictions, targets, TokenClassification()).metrics(3)
    expected = sklearn_metrics.f1_score(targets[:, :4].flatten(), predictions[:, :4].flatten(), average="macro")
    assert found["f1"] == pytest.approx(expected)


def test_targets_outside_the_classes() -> None:
    with pytest.raises(InputError, match="t: a target is 2; allowed: integers from 0 to 1"):
        TASK.check_targets(torch.tensor([[0, 2, IGNORED]]), 2, "t")
