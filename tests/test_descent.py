"""Steps without a gradient laid down, against torch.optim.SGD."""

import copy

import pytest
import torch
from torch import nn

from fedrun import descent
from fedrun.descent import Descent


def in_place():
    """A layer changes the outputs of the linear one before it."""
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Dropout(0.0))


class Twice(nn.Module):
    """Its linear layer is used twice, and its weights once more by themselves."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.last = nn.Linear(4, 6)

    def forward(self, x):
        return self.last(self.layer(self.layer(x)) + x @ self.layer.weight)


class Recurring(nn.Module):
    """A sequence: the linear layer sees ``[batch, length, width]``."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 3), nn.Tanh())

    def forward(self, x):
        return self.inner(x.view(-1, 2, 2)).flatten(1)


@pytest.mark.parametrize("large", [0, 20, 10**6], ids=["every layer", "some", "none"])
@pytest.mark.parametrize("encoder", [in_place, Twice, Recurring])
def test_steps_are_those_of_torchs_sgd(monkeypatch, large, encoder):
    monkeypatch.setattr(descent, "LARGE", large)
    torch.manual_seed(0)
    used = nn.Sequential(encoder(), nn.Linear(6, 3))
    network = nn.Sequential(used, nn.Linear(5, 5))
    ordinary = copy.deepcopy(used)
    optimizer = torch.optim.SGD(ordinary.parameters(), lr=0.3)
    with Descent(network) as steps:
        for _ in range(3):
            inputs, labels = torch.randn(7, 4), torch.randint(0, 3, (7,))
            steps.step(nn.functional.cross_entropy(used(inputs), labels), 0.3)
            optimizer.zero_grad()
            nn.functional.cross_entropy(ordinary(inputs), labels).backward()
            optimizer.step()
    for own, other in zip(used.parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-5, atol=1e-6)


def test_a_network_is_left_as_it_was(monkeypatch):
    monkeypatch.setattr(descent, "LARGE", 0)
    network = nn.Sequential(nn.Linear(4, 3))
    with Descent(network):
        assert network[0]._forward_hooks
    assert not network[0]._forward_hooks
