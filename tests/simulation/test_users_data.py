"""Datasets and partitions of a user's own: what they return is checked before training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Spec
from fedrun.data.datasets.in_memory import in_memory
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


SPEC = Spec(input_shape=(2,), classes=3)


def loaded(shape: tuple[int, ...], labels: list[int]) -> Dataset:
    split = np.zeros(shape, np.float32), np.array(labels)
    return in_memory(SPEC, Scaled(divisor=1.0), ("a", "b", "c"), split, split)


LOADED: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (lambda: None, "^dataset=Mine: loads a NoneType; allowed: a Dataset$"),
    "shape": (
        lambda: loaded((2, 5), [0, 1]),
        r"samples \[4, 5\] with targets \[4\]; allowed: as many, and samples \[n, 2\] as specified$",
    ),
    "number": (lambda: loaded((2, 2), [0, 1, 2]), r"samples \[4, 2\] with targets \[6\]; allowed: as many"),
    "labels": (lambda: loaded((2, 2), [0, 3]), "^dataset=Mine: label 1 is 3; labels are 0 to 2$"),
}


@pytest.mark.parametrize("name", LOADED)
def test_loaded_data(name: str) -> None:
    load, message = LOADED[name]
    attributes = {"load": lambda self: load(), "spec": property(lambda self: SPEC), "__module__": "mine"}
    dataset = config_class(type("Mine", (DatasetConfig,), attributes))()
    with pytest.raises(InputError, match=message):
        prepare_federation(replace(build_experiment(compose([])), dataset=dataset))
