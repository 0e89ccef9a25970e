"""Steps without a gradient laid down, against torch.optim.SGD."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from fedrun.training import fused_sgd as descent
from fedrun.training.fused_sgd import FusedSGDStep


def in_place():
    """A layer changes the outputs of the linear one before it."""
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Dropout(0.0))


class Pairs(nn.Module):
    def forward(self, x):
        return x.view(-1, 2, 2)


def recurring():
    """A sequence: the linear layer sees ``[batch, length, width]``."""
    return nn.Sequential(Pairs(), nn.Linear(2, 3), nn.Tanh(), nn.Flatten())


def repeated():
    """A large layer is used three times: the gradient at its second use needs the weights as the third found them."""
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    return nn.Sequential(inner, inner, inner, nn.Linear(4, 6))


def tied():
    """Two large layers have the same weights: the first one's gradient at its inputs needs their old values."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    return nn.Sequential(nn.Linear(4, 4), first, nn.Tanh(), second, nn.Linear(4, 6))


def shared():
    """A large layer is in two Sequentials."""
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Sequential(layer, nn.Tanh()), nn.Sequential(layer, nn.Linear(4, 6)))


class OwnUse(nn.Module):
    """Its forward pass uses a layer's weights once more by themselves, before the layer."""

    def __init__(self):
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 6)

    def forward(self, x):
        return self.last(self.layer(torch.tanh(self.first(x) @ self.layer[0].weight)))


class Transposed(nn.Module):
    """The product with another layer's weights, transposed."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def borrowed():
    """A module uses a large layer's weights in its own way, before the layer."""
    layer = nn.Linear(4, 4)
    return nn.Sequential(nn.Linear(4, 4), Transposed(layer.weight), layer, nn.Linear(4, 6))


@pytest.mark.parametrize("block", [1, 8, 10**6], ids=["by rows", "in blocks", "at once"])
@pytest.mark.parametrize("large", [0, 20, 10**6], ids=["every layer", "some", "none"])
@pytest.mark.parametrize("encoder", [in_place, recurring, repeated, tied, shared, OwnUse, borrowed])
def test_steps_are_those_of_torchs_sgd(monkeypatch, large, encoder, block):
    monkeypatch.setattr(descent, "LARGE", large)
    monkeypatch.setattr(descent, "BLOCK", block)
    torch.manual_seed(0)
    used = nn.Sequential(encoder(), nn.Linear(6, 3))
    network = nn.Sequential(used, nn.Linear(5, 5))
    ordinary = copy.deepcopy(used)
    optimizer = torch.optim.SGD(ordinary.parameters(), lr=0.3)
    with FusedSGDStep(network) as steps:
        for _ in range(3):
            inputs, labels = torch.randn(7, 4), torch.randint(0, 3, (7,))
            steps.step(nn.functional.cross_entropy(used(inputs), labels), 0.3)
            optimizer.zero_grad()
            nn.functional.cross_entropy(ordinary(inputs), labels).backward()
            optimizer.step()
    for own, other in zip(used.parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)


def test_a_drift_finds_the_weights_as_they_were(monkeypatch):
    """W − η (G + μ (W − A)) with A = 0, by hand: the loss is the sum of the outputs, so G is the inputs."""
    monkeypatch.setattr(descent, "LARGE", 0)
    network = nn.Sequential(nn.Linear(2, 1, bias=False))
    weight = network[0].weight
    with torch.no_grad():
        weight.copy_(torch.tensor([[1.0, -2.0]]))
    with FusedSGDStep(network) as steps:
        steps.step(network(torch.tensor([[3.0, 4.0]])).sum(), 0.5, lambda: weight.data.mul_(1 - 0.5 * 0.1))
    torch.testing.assert_close(weight.data, torch.tensor([[1 - 0.5 * (3 + 0.1), -2 - 0.5 * (4 - 0.2)]]))


def test_weights_with_a_hook(monkeypatch):
    """The hook sees the gradient and masks it; the loss is the sum of the outputs, so the gradient is the inputs."""
    monkeypatch.setattr(descent, "LARGE", 0)
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
    layer.weight.register_hook(lambda gradient: gradient * torch.tensor([[1.0, 0.0]]))
    network = nn.Sequential(layer)
    with FusedSGDStep(network) as steps:
        steps.step(network(torch.tensor([[3.0, 4.0]])).sum(), 0.5)
    assert layer.weight.tolist() == [[1 - 0.5 * 3, -2]]


def test_weights_that_are_made_of_others(monkeypatch):
    """A pruned layer's are, before each pass; the loss is the sum of the outputs, so the gradient is the inputs."""
    monkeypatch.setattr(descent, "LARGE", 0)
    layer = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
    network = nn.Sequential(prune.custom_from_mask(layer, "weight", torch.tensor([[1.0, 0.0]])))
    with FusedSGDStep(network) as steps:
        steps.step(network(torch.tensor([[3.0, 4.0]])).sum(), 0.5)
    assert layer.weight_orig.tolist() == [[1 - 0.5 * 3, -2]]


def test_a_pass_without_a_step_changes_nothing(monkeypatch):
    monkeypatch.setattr(descent, "LARGE", 0)
    network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    before = copy.deepcopy(network)
    x = torch.tensor([[1.0, 2.0]])
    with FusedSGDStep(network) as steps:
        network(x)
        steps.step(network(x).sum(), 0.1)
    optimizer = torch.optim.SGD(before.parameters(), lr=0.1)
    before(x).sum().backward()
    optimizer.step()
    for own, other in zip(network.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(own, other)


def test_a_network_is_left_as_it_was(monkeypatch):
    monkeypatch.setattr(descent, "LARGE", 0)
    network = nn.Sequential(nn.Linear(4, 3))
    with FusedSGDStep(network):
        assert "forward" in vars(network[0])
    assert "forward" not in vars(network[0])
