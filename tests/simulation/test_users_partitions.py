"""Partitions of a user's own: what they return is checked before training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.partitions.base import Partition
from fedrun.data.partitions.train_split import with_pooled_test
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.prepare import prepare_federation
from fedrun.system.errors import InputError

SAMPLES, TRAINING = 1797, 1442
"""Of scikit-learn's digits."""

BOTH = np.array([0]), np.array([1, 2])
MISTAKES: dict[str, tuple[Callable[[Dataset], object], str]] = {
    "nothing": (lambda dataset: None, "returns a NoneType; allowed: a Federation$"),
    "clients": (lambda dataset: ClientIndices.of(BOTH), "returns a ClientIndices; allowed: a Federation$"),
    "none": (lambda dataset: pooled(dataset, []), "there are 0 clients, 0 of them"),
    "empty": (lambda dataset: pooled(dataset, [BOTH[0], np.array([], int)]), "there are 2 clients, 1 of them"),
    "missing": (
        lambda dataset: pooled(dataset, [BOTH[0], np.array([SAMPLES])]),
        "has sample 1797; allowed: 0 to 1796$",
    ),
    "negative": (lambda dataset: pooled(dataset, [BOTH[0], np.array([-1])]), "has sample -1; allowed: 0 to 1796$"),
    "tests": (
        lambda dataset: pooled(dataset, [np.arange(TRAINING + 2)]),
        "2 training samples are also test samples, such as sample 1442; allowed: none$",
    ),
    "mask": (
        lambda dataset: pooled(dataset, [np.arange(TRAINING) < 700]),
        r"^the samples of client 0 are bool \[1442\]; allowed: integers \[n\]$",
    ),
    "nested": (lambda dataset: pooled(dataset, [np.zeros((1, 2), int)]), r"client 0 are int64 \[1, 2\]; allowed: "),
}


def pooled(dataset: Dataset, parts: list[np.ndarray]) -> Federation:
    return with_pooled_test(dataset, ClientIndices.of(parts))


def partitioned(split: Callable[[Dataset], object]) -> Experiment:
    partition = config_class(type("Mine", (Partition,), {"split": lambda self, dataset, seed: split(dataset)}))()
    return replace(build_experiment(compose(["clients_per_round=1"])), partition=partition)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    split, message = MISTAKES[name]
    with pytest.raises(InputError, match=message):
        prepare_federation(partitioned(split))


def test_lists_of_numbers() -> None:
    federation = prepare_federation(partitioned(lambda dataset: pooled(dataset, [[3, 4], [5]])))
    assert [federation.train[0].tolist(), federation.train[1].tolist()] == [[3, 4], [5]]
