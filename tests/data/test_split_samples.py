"""Which of a client's samples are held out."""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np
import pytest
import torch

from fedrun.data.federation import ClientIndices
from fedrun.data.split_samples import HeldOut, split_samples


def leaf_split(samples: int, fraction: float) -> tuple[list[int], list[int]]:
    """Training and test indices of one role of Shakespeare, as LEAF's split_data.py draws them."""
    training = max(1, int(fraction * samples))
    return list(range(training)), list(range(training + 80 - 1, samples))


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def test_roles_are_split_as_in_leaf() -> None:
    sizes = [1000, 90, 400]
    starts = np.cumsum([0, *sizes])
    clients = ClientIndices.of([np.arange(a, b) for a, b in pairwise(starts)], ("a", "b", "c"))
    train, test = split_samples(clients, 0.1, "auto", 79, generator(), "key")
    for client, size in enumerate(sizes):
        expected = leaf_split(size, 0.9)
        assert [(part[client] - starts[client]).tolist() for part in (train, test)] == [*expected]
    assert test.sizes.tolist() == [21, 0, 0]  # LEAF drops the roles without test windows; here they only have no test
    assert (train.names, test.names) == (("a", "b", "c"), ("a", "b", "c"))


def test_no_held_out_window_shares_a_character_with_training() -> None:
    """Windows of five characters, dealt to two clients in random order: the gap is counted in the text."""
    text, order = np.arange(64), generator().permutation(60)
    windows = np.stack([text[start : start + 5] for start in range(60)])
    clients = ClientIndices.of([order[:35], order[35:]])
    train, test = split_samples(clients, 0.3, "last", 4, generator(), "key")
    for client in (0, 1):
        seen, held_out = (set(windows[part[client].numpy()].flatten()) for part in (train, test))
        assert seen and held_out and not seen & held_out
    assert train.sizes.tolist() == [24, 17]
    assert not set(train.samples.tolist()) & set(test.samples.tolist())


@pytest.mark.parametrize(
    ("held_out", "overlap", "warned"), [("random", 79, True), ("auto", 79, False), ("auto", 0, False)]
)
def test_overlapping_samples_at_random_are_warned_of(
    caplog: pytest.LogCaptureFixture, held_out: str, overlap: int, warned: bool
) -> None:
    clients = ClientIndices.of([np.arange(300)])
    with caplog.at_level(logging.WARNING):
        split_samples(clients, 0.5, held_out, overlap, generator(), "population.test_of")
    assert ("population.test_of=random: each sample shares input with 79" in caplog.text) == warned


def test_separate_samples_are_held_out_at_random() -> None:
    clients = ClientIndices.of([np.arange(100)])
    train, test = split_samples(clients, 0.5, "auto", 0, generator(), "key")
    assert torch.equal(torch.cat([train[0], test[0]]).sort().values, torch.arange(100))
    assert train[0].max() > test[0].min()


@pytest.mark.parametrize(
    ("held_out", "overlap", "sizes"),
    [("auto", 1, [5, 4]), ("last", 1, [5, 4]), ("last", 0, [5, 5]), ("random", 1, [5, 5]), ("random", 3, [5, 5])],
)
def test_only_the_last_samples_leave_a_gap(held_out: HeldOut, overlap: int, sizes: list[int]) -> None:
    """Of 10 samples 5 are for training; sample 5 overlaps the last of them, 4, if successive samples share input."""
    train, test = split_samples(ClientIndices.of([np.arange(10)]), 0.5, held_out, overlap, generator(), "key")
    assert [len(train[0]), len(test[0])] == sizes
    if held_out != "random":
        assert (train[0].tolist(), test[0].tolist()) == ([0, 1, 2, 3, 4], list(range(10 - sizes[1], 10)))
