"""Multiply-adds of forward passes, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedrun.models.multiply_adds import multiply_adds


class Last(nn.Module):
    """The states of an LSTM, without its last ones."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.lstm(x)[0]
        return states


class WithNothing(nn.Linear):
    """A user's linear layer that returns something besides its product."""

    def forward(self, input: torch.Tensor) -> Any:
        return super().forward(input), None


class StatesAlone(nn.LSTM):
    """A user's LSTM that returns its states alone."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(input, hx)[0]


@pytest.mark.parametrize(
    ("network", "shape", "expected"),
    [
        (nn.Linear(5, 7), (3, 5), 3 * 5 * 7),
        (nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 2)), (1, 5), 35 + 14),
        (nn.Conv2d(2, 6, 3, padding=1), (4, 2, 8, 8), 4 * 64 * 6 * 2 * 9),
        (nn.Conv2d(4, 6, 3, stride=2, groups=2), (1, 4, 9, 9), 16 * 6 * 2 * 9),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (1, 4, 5, 5), 25 * 4 * 3 * 9),
        (nn.GRUCell(3, 4), (2, 3), 2 * (12 * 3 + 12 * 4)),
        (Last(), (2, 5, 3), 2 * 5 * (16 * 3 + 16 * 4 + 16 * 4 + 16 * 4)),  # four gates of 4 units
        (WithNothing(5, 7), (3, 5), 3 * 5 * 7),
        (StatesAlone(3, 4, batch_first=True), (2, 5, 3), 2 * 5 * (16 * 3 + 16 * 4)),
        (nn.Sequential(nn.BatchNorm1d(5), nn.ReLU()), (1, 5), 0),
        (nn.utils.parametrizations.weight_norm(nn.Linear(5, 7)), (3, 5), 3 * 5 * 7),
        # queries, keys, values and their projection, then the perceptron
        (nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), (3, 5, 4), 15 * (4 * 4 * 4 + 2 * 4 * 6)),
    ],
    ids=[
        "linear",
        "perceptron",
        "convolution",
        "strides and groups",
        "transposed convolution",
        "GRU cell",
        "LSTM",
        "several outputs",
        "states alone",
        "nothing to count",
        "computed weights",
        "attention",
    ],
)
def test_counts(network: nn.Module, shape: tuple[int, ...], expected: int) -> None:
    assert multiply_adds(network, torch.zeros(shape)) == expected


def test_the_linear_layer_of_gpt2() -> None:
    linear = pytest.importorskip("transformers.pytorch_utils").Conv1D(7, 5)
    assert list(linear.weight.shape) == [5, 7]
    assert multiply_adds(linear, torch.zeros(3, 5)) == 3 * 5 * 7


class Conv1D(nn.Module):
    """A user's module, named as GPT-2's linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.convolution(x)
        return output


def test_another_module_of_that_name() -> None:
    assert multiply_adds(Conv1D(), torch.zeros(4, 2, 8)) == 4 * 8 * 6 * 2 * 3


def test_nothing_is_left_behind() -> None:
    network = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2))
    network[0].eval()
    before, random = {name: value.clone() for name, value in network.state_dict().items()}, torch.get_rng_state()
    multiply_adds(network, torch.ones(1, 5))
    assert [layer.training for layer in network] == [False, True, True]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network[2]._forward_hooks and torch.equal(torch.get_rng_state(), random)
