"""Evaluation in either precision."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from fedrun.data.datasets.base import Scaled
from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.symbols import IGNORED, TokenClassification
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.inference import ensemble, evaluate, per_client, total_weights


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-6), ("bfloat16", 0.02)])
def test_losses_and_predictions_in_either_precision(precision, tolerance):
    """bfloat16 keeps 8 bits: logits below 1 are right to about 1/256, differences of two to twice that."""
    torch.manual_seed(0)
    network = nn.Sequential(OrderedDict(encoder=nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten()), head=nn.Linear(16, 3)))
    inputs, targets = torch.randint(0, 256, (20, 1, 4, 4)).to(torch.uint8), torch.randint(0, 3, (20,))
    with torch.no_grad():
        logits = network(inputs.float() / 255)
    samples, order = Samples(inputs, targets, Scaled(255.0), torch.device("cpu")), torch.randperm(20)
    found = evaluate(FlatNetwork(network), samples, order, 7, precision)
    expected = nn.functional.cross_entropy(logits, targets, reduction="none")[order]
    assert found.losses.dtype == torch.float32
    torch.testing.assert_close(found.losses, expected, rtol=0, atol=tolerance)
    sure = (logits.topk(2).values.diff().abs()[:, 0] > 0.02)[order]
    assert sure.sum() > 10
    assert torch.equal(found.predictions[sure], logits.argmax(1)[order][sure])
    assert torch.equal(found.targets, targets[order])


def test_each_of_several_models_counts_in_either_precision():
    """Heads of 2, 3 and 5 times the identity on one feature: sums of logits without any rounding, also in bfloat16."""
    network = nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(2, 2, bias=False)))
    flat = FlatNetwork(network)
    models = [factor * torch.eye(2).flatten() for factor in (2.0, 3.0, 5.0)]
    inputs, targets = torch.tensor([[1.0, 0.0], [0.0, 0.5], [0.25, 1.0]]), torch.tensor([0, 0, 1])
    samples = Samples(inputs, targets, Scaled(1.0), torch.device("cpu"))
    expected = nn.functional.cross_entropy(10 * inputs, targets, reduction="none")
    for precision in ("float32", "bfloat16"):
        found = ensemble(flat, models, samples, torch.arange(3), 2, precision)
        torch.testing.assert_close(found.losses, expected)


class Rows(nn.Module):
    """Flattens as many networks do, which PyTorch refuses for a batch without samples."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.view(len(inputs), -1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_client_without_test_samples_has_no_results(count):
    flat = FlatNetwork(nn.Sequential(OrderedDict(encoder=Rows(), head=nn.Linear(4, 3))))
    samples = Samples(torch.ones(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64), Scaled(1.0), torch.device("cpu"))
    none = torch.empty(0, dtype=torch.int64)
    models = [flat.vector.clone()] * count
    found = evaluate(flat, samples, none, 2) if count == 1 else ensemble(flat, models, samples, none, 2)
    assert (found.losses.tolist(), found.predictions.tolist(), found.targets.tolist()) == ([], [], [])
    assert np.isnan(found.mean_loss) and np.isnan(found.mean_score)


def test_clients_weigh_as_much_as_their_predicted_symbols():
    """Two texts with 3 and 1 symbols, one with none, against as many images. Of the first client's 4 symbols 2 are
    right; its mean loss is (3 · 2 + 1 · 6) / 4.
    """
    targets = torch.full((3, 4), IGNORED)
    targets[0, :3] = targets[1, 0] = 0
    clients = ClientIndices.of([np.array([0, 1]), np.array([2])])
    texts = Samples(torch.zeros(3, 4), targets, Scaled(1.0), torch.device("cpu"), task=TokenClassification())
    images = Samples(torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), Scaled(1.0), torch.device("cpu"))
    assert total_weights(texts, clients).tolist() == [4, 0]
    assert total_weights(images, clients).tolist() == [2, 1]
    predictions = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    found = per_client(SampleResults(torch.tensor([2.0, 6.0, 0.0]), predictions, targets, texts.task), clients)
    assert [values[0].item() for values in found] == pytest.approx([3, 0.5])
    assert all(values[1].isnan() for values in found)
