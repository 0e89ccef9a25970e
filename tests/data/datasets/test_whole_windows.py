"""Texts whose characters are all predicted."""

from __future__ import annotations

import torch

from fedrun.data.datasets.base import Dataset, Spec, Symbols, Users
from fedrun.data.datasets.shakespeare import whole_windows
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.models.leaf_shakespeare_lstm import LeafShakespeareLSTM


def test_each_character_is_predicted_once() -> None:
    # the roles say 0 1 2 3 4 5 and 6 7 8 9; windows of two characters and the next
    windows = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4], [6, 7], [7, 8]], dtype=torch.uint8)
    users = Users(("a", "b"), torch.tensor([0, 4, 6]), 1)
    following = torch.tensor([2, 3, 4, 5, 8, 9])
    found = whole_windows(Dataset(Spec((2,), 10, 10), Symbols(), windows, following, 4, users, (), "", overlap=1))
    assert found.inputs.tolist() == [[0, 1], [2, 3], [6, 7]]
    assert found.targets.tolist() == [[1, 2], [3, 4], [7, 8]]
    assert found.users is not None
    assert (found.users.offsets.tolist(), found.train_size, found.overlap) == ([0, 2, 3], 2, 0)


def test_the_lstm_has_an_output_for_every_character_that_later_ones_do_not_change() -> None:
    spec = Spec((4,), 5, 5, LanguageModelling())
    network = LeafShakespeareLSTM(symbol_dim=3, embedding_dim=6, layers=2).build(spec)
    text = torch.tensor([[0, 1, 2, 3], [0, 1, 4, 4]])
    outputs = network(text)
    assert outputs.shape == (2, *spec.output_shape)
    assert torch.allclose(outputs[0, :2], outputs[1, :2])
    last = LeafShakespeareLSTM(symbol_dim=3, embedding_dim=6, layers=2).build(Spec((4,), 5, 5))
    last.load_state_dict(network.state_dict())
    assert torch.allclose(last(text), outputs[:, -1])
    padded = LeafShakespeareLSTM(symbol_dim=3, embedding_dim=6, layers=2).build(Spec((4,), 5, 5, padding=4))
    padded.load_state_dict(network.state_dict())
    assert torch.allclose(padded(text), torch.stack([outputs[0, 3], outputs[1, 1]]))
