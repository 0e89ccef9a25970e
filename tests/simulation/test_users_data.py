"""Datasets and partitions of a user's own: what they return is checked before training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Spec, Symbols, Users
from fedrun.data.datasets.in_memory import in_memory
from fedrun.data.federation import ClientIndices, Clients, Federation
from fedrun.data.partitions.base import Partition
from fedrun.data.partitions.train_split import with_pooled_test
from fedrun.data.tasks.base import Task
from fedrun.data.tasks.multi_label import MultiLabel
from fedrun.data.tasks.regression import Regression
from fedrun.data.tasks.symbols import TokenClassification
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.prepared_federation import prepare_federation
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

SAMPLES, TRAINING = 1797, 1442
"""Of scikit-learn's digits."""

BOTH = np.array([0]), np.array([1, 2])
MISTAKES: dict[str, tuple[Callable[[Dataset], object], str]] = {
    "nothing": (lambda dataset: None, "returns a NoneType; allowed: a Federation$"),
    "clients": (lambda dataset: ClientIndices.of(BOTH), "returns a ClientIndices; allowed: a Federation$"),
    "unseen clients": (
        lambda dataset: replace(
            pooled(dataset, list(BOTH)), unseen=Clients(ClientIndices.of([np.array([7])]), None, torch.zeros(1).bool())
        ),
        "returns a federation with unseen clients; allowed: none, because population.unseen_clients chooses them$",
    ),
    "flipped labels": (
        lambda dataset: replace(pooled(dataset, list(BOTH)), flipped=torch.ones(2, dtype=torch.bool)),
        "returns a federation with flipped labels; allowed: none, because population.flipped_share chooses them$",
    ),
    "attackers": (
        lambda dataset: replace(pooled(dataset, list(BOTH)), attackers=frozenset({1})),
        "returns a federation with attackers; allowed: none, because attack.share chooses them$",
    ),
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
        r"^ClientIndices.of: the samples of client 0 are bool \[1442\]; allowed: integers \[n\]$",
    ),
    "test of too few": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[5]]),
        "client_test has the samples of 1 clients, and 2 clients train; allowed: 2$",
    ),
    "tests without samples": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[], []]),
        "client_test has no sample; allowed: at least one, or client_test=None$",
    ),
    "training sample twice": (
        lambda dataset: pooled(dataset, [[3, 5], [5, 4, 5]]),
        "client 1 has training sample 5 more than once; allowed: once ",
    ),
    "test sample twice": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[5, 5], []]),
        "client 0 has test sample 5 more than once; allowed: once ",
    ),
    "trained and tested": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[4], [5]]),
        "1 training samples are also test",
    ),
    "one name": (
        lambda dataset: own_tests(dataset, [[3], [4], [6]], [[5], [], []], "aba", "aba"),
        "2 clients are named 'a'; allowed: a different name for each client$",
    ),
    "too few names": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[5], []], "a", "ab"),
        "1 names for the training samples of 2 clients; allowed: 2$",
    ),
    "too few names of tests": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[5], []], "ab", "a"),
        "1 names for the test samples of 2 clients; allowed: 2$",
    ),
    "other names": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[5], []], "ab", "ac"),
        "client 1 is named 'b', and in client_test 'c'; allowed: the same names in the same order$",
    ),
    "no names": (
        lambda dataset: own_tests(dataset, [[3], [4]], [[5], []], "ab"),
        "client 0 is named 'a', and in client_test '0'; allowed: ",
    ),
    "nested": (lambda dataset: pooled(dataset, [np.zeros((1, 2), int)]), r"client 0 are int64 \[1, 2\]; allowed: "),
}


def pooled(dataset: Dataset, parts: list[np.ndarray]) -> Federation:
    return with_pooled_test(dataset, ClientIndices.of(parts))


def own_tests(
    dataset: Dataset, parts: list[list[int]], tests: list[list[int]], names: str = "", tested_names: str = ""
) -> Federation:
    """Clients with tests of their own; each letter is a name, and without any, clients have numbers."""
    train = ClientIndices.of(list(map(np.array, parts)), tuple(names) or None)
    own = ClientIndices.of(list(map(np.array, tests)), tuple(tested_names) or None)
    return replace(with_pooled_test(dataset, train), client_test=own)


def test_names_that_are_numbers_become_texts() -> None:
    """A table of results by client has texts only."""
    assert ClientIndices.of(BOTH, [7, 12]).names == ("7", "12")


def partitioned(split: Callable[[Dataset], object]) -> Experiment:
    partition = config_class(type("Mine", (Partition,), {"split": lambda self, dataset, seed: split(dataset)}))()
    return replace(build_experiment(compose(["clients_per_round=1", "hardware.threads=1"])), partition=partition)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    split, message = MISTAKES[name]
    with pytest.raises(InputError, match=message):
        prepare_federation(partitioned(split))


def test_lists_of_numbers() -> None:
    federation = prepare_federation(partitioned(lambda dataset: pooled(dataset, [[3, 4], [5]])))
    assert [federation.train[0].tolist(), federation.train[1].tolist()] == [[3, 4], [5]]


def test_clients_may_share_samples() -> None:
    """A public part of the training samples, and one test for several clients."""
    shared = partitioned(lambda dataset: own_tests(dataset, [[3, 7], [4, 7]], [[5], [5]]))
    federation = prepare_federation(shared)
    assert federation.client_test is not None and federation.client_test.samples.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ("population.test_share=0.5", "some would train on what others hold out"),
        ("validation.share=0.5", "some would train on what others hold out"),
        ("population.flipped_share=0.5", "a change of one client's would be all clients'"),
        ("attack=label_flip attack.share=0.5", "a change of one client's would be all clients'"),
    ],
)
def test_common_samples_are_neither_held_out_nor_changed(overrides: str, reason: str) -> None:
    """Of the clients 3, 7, 8, 9 and 7, 8, 9, 10 each would train on some of what the other holds out."""
    shared = partitioned(lambda dataset: pooled(dataset, [[3, 7, 8, 9], [7, 8, 9, 10]]))
    experiment = replace(build_experiment(compose(overrides.split())), partition=shared.partition)
    setting = overrides.partition(" ")[0]
    message = f"^{setting} with partition=Mine, where several clients have the same sample: {reason}; allowed: clients"
    with pytest.raises(InputError, match=message):
        prepare_federation(experiment)
    separate = partitioned(lambda dataset: pooled(dataset, [[3, 7, 8, 9], [10, 11, 12, 13]]))
    assert len(prepare_federation(replace(experiment, partition=separate.partition)).train) == 2


def test_common_tests_are_not_flipped() -> None:
    shared = partitioned(lambda dataset: own_tests(dataset, [[3, 7], [4, 8]], [[5], [5]]))
    experiment = replace(build_experiment(compose(["population.flipped_share=0.5"])), partition=shared.partition)
    with pytest.raises(InputError, match="where several clients have the same sample: a change of one"):
        prepare_federation(experiment)


@pytest.mark.parametrize(
    ("parts", "overrides", "warned"),
    [
        ([range(20), range(20, 40)], ["validation.share=0.3"], False),  # a text for each client
        ([range(0, 40, 2), range(1, 40, 2)], ["validation.share=0.3"], True),
        ([range(0, 40, 2), range(1, 40, 2)], ["validation.share=0.5", "validation.of=clients"], True),
        ([range(0, 40, 2), range(1, 40, 2)], ["population.test_share=0.3"], True),
        ([range(0, 40, 2), range(1, 40, 2)], [], False),  # nothing is held out
    ],
)
def test_windows_of_a_text_on_several_clients_are_warned_of(
    caplog: pytest.LogCaptureFixture, parts: list[range], overrides: list[str], warned: bool
) -> None:
    """Two texts of 20 windows, each of which shares input with the three before and after it."""
    users = Users(("a", "b", "test"), torch.tensor([0, 20, 40, SAMPLES]), 2)

    def split(dataset: Dataset) -> Federation:
        return pooled(replace(dataset, users=users, overlap=3), [list(part) for part in parts])

    experiment = replace(build_experiment(compose(overrides)), partition=partitioned(split).partition)
    federation = prepare_federation(experiment)
    assert ("partition=Mine divides a text's windows among clients, and each shares input with 3" in caplog.text) == (
        warned
    )
    if overrides:
        held_out = federation.test if federation.client_test is None else federation.client_test
        distance = (federation.train.samples[:, None] - held_out.samples).abs()
        same_text = (federation.train.samples[:, None] < 20) == (held_out.samples < 20)
        assert bool(((distance <= 3) & same_text).any()) == warned


def with_tests(dataset: Dataset) -> Federation:
    return own_tests(dataset, [[3, 7], [4, 8]], [[5], [1442, 1443]])


def test_a_second_test_of_the_clients() -> None:
    experiment = partitioned(with_tests)
    chosen = replace(experiment, population=replace(experiment.population, test_share=0.3))
    with pytest.raises(
        InputError,
        match=r"^population\.test_share=0\.3 with partition=Mine, which gives clients test samples of their own; "
        r"allowed: population\.test_share=0$",
    ):
        prepare_federation(chosen)


def test_settings_that_need_tests_of_clients() -> None:
    """Whether a user's partition gives clients tests is known when it has run."""
    experiment = partitioned(with_tests)
    tuned = replace(experiment, evaluation=replace(experiment.evaluation, tuning_steps=2))
    simulation = Simulation(tuned)
    metrics = simulation.test(simulation.initial())
    assert {"clients/accuracy_mean", "clients/tuned_accuracy_mean"} <= metrics.keys()
    untested = partitioned(lambda dataset: pooled(dataset, [[3, 7], [4, 8]]))
    with pytest.raises(InputError, match=r"^evaluation\.tuning_steps=2 needs test samples of every client; set popul"):
        Simulation(replace(untested, evaluation=tuned.evaluation))
    appeal = build_experiment(
        compose(["appeal=constant", "appeal.convention=test", "population.test_share=0.3"])
    ).appeal
    assert "clients/gm_appeal" in Simulation(replace(experiment, appeal=appeal)).test(simulation.initial())
    with pytest.raises(InputError, match=r"^appeal\.convention=test needs test samples of every client; set popul"):
        Simulation(replace(untested, appeal=appeal))


def test_adaptive_evaluation_and_tests_of_clients() -> None:
    experiment = partitioned(with_tests)
    adaptive = replace(experiment, evaluation=replace(experiment.evaluation, adaptive=True), targets=(0.5,))
    with pytest.raises(InputError, match=r"^evaluation\.adaptive=true is for one accuracy over all test samples"):
        Simulation(adaptive)
    _ = Simulation(replace(adaptive, partition=partitioned(lambda dataset: pooled(dataset, [[3], [4]])).partition))


SPEC = Spec(input_shape=(2,), classes=3)


def loaded(shape: tuple[int, ...], labels: list[int]) -> Dataset:
    split = np.zeros(shape, np.float32), np.array(labels)
    return in_memory(SPEC, Scaled(divisor=1.0), ("a", "b", "c"), split, split)


def changed(**changes: Any) -> Dataset:
    return replace(loaded((2, 2), [0, 1]), **changes)


def users(names: Iterable[Any], offsets: list[int], training: int = 1) -> Dataset:
    return changed(users=Users(tuple(names), torch.tensor(offsets), training))


LOADED: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (lambda: None, "^dataset=Mine: loads a NoneType; allowed: a Dataset$"),
    "shape": (
        lambda: loaded((2, 5), [0, 1]),
        r"samples \[4, 5\] with targets \[4\]; allowed: as many, and samples \[n, 2\] as specified$",
    ),
    "number": (lambda: loaded((2, 2), [0, 1, 2]), r"samples \[4, 2\] with targets \[6\]; allowed: as many"),
    "labels": (lambda: loaded((2, 2), [0, 3]), "^dataset=Mine: sample 1 has label 3; labels are 0 to 2$"),
    "missing value": (
        lambda: changed(inputs=torch.tensor([[0.0, 1.0]] * 3 + [[0.0, float("nan")]])),
        "^dataset=Mine: samples with NaN or infinity; allowed: finite numbers$",
    ),
    "overflow": (
        lambda: changed(inputs=torch.tensor([[0.0, -float("inf")]] + [[0.0, 1.0]] * 3)),
        "samples with NaN or infinity",
    ),
    "array": (lambda: changed(inputs=np.zeros((4, 2), np.float32)), "samples are a ndarray; allowed: a tensor$"),
    "type": (
        lambda: changed(targets=torch.zeros(4, dtype=torch.int32)),
        r"are int32 \[4\]; allowed: int64 \[n\], a cl",
    ),
    "column": (
        lambda: changed(targets=torch.zeros(4, 1, dtype=torch.int64)),
        r"are int64 \[4, 1\]; allowed: int64 \[n\]",
    ),
    "classes": (lambda: changed(class_names=("a", "b")), r"class_names=\('a', 'b'\); allowed: 3 strings$"),
    "numbers": (lambda: changed(class_names=(0, 1, 2)), r"class_names=\(0, 1, 2\); allowed: 3 strings$"),
    "few users": (lambda: users("ab", [0, 1, 2, 4]), r"the offsets of 2 users are .*; allowed: a tensor, int64 \[3\]"),
    "offsets": (lambda: users("abc", [0, 2, 1, 4]), r"3 users are tensor.*; allowed: .*, ascending from 0 to 4$"),
    "user": (lambda: users((1, 2), [0, 2, 4]), "a user is named 1; allowed: strings$"),
    "training users": (lambda: users("ab", [0, 2, 4], training=3), "3 of 2 users are training users; allowed: 0 to 2"),
}


def text(symbols: list[int]) -> Dataset:
    """Texts of two symbols of ten."""
    return changed(
        spec=replace(SPEC, vocabulary=10), encoding=Symbols(), inputs=torch.tensor([symbols] * 4, dtype=torch.int16)
    )


LOADED |= {
    "symbol beyond the vocabulary": (
        lambda: text([3, 10]),
        "^dataset=Mine: symbols from 3 to 10; allowed: 0 to 9, because the vocabulary has 10 symbols$",
    ),
    "negative symbol": (lambda: text([-1, 9]), "^dataset=Mine: symbols from -1 to 9; allowed: 0 to 9, "),
}


def of_task(task: Task, targets: list[Any], dtype: torch.dtype) -> Dataset:
    return changed(spec=replace(SPEC, task=task), targets=torch.tensor(targets, dtype=dtype))


# A loss would compare every output with the targets of all samples, or leave out targets beyond the samples' symbols.
LOADED |= {
    "numbers without a dimension": (
        lambda: of_task(Regression(), [0, 1, 2, 3], torch.float32),
        r"^dataset=Mine: targets \[4\]; allowed: numbers \[n, 3\]$",
    ),
    "labels without a dimension": (
        lambda: of_task(MultiLabel(), [0, 1, 1, 0], torch.uint8),
        r"^dataset=Mine: targets \[4\]; allowed: 0 or 1 for each label \[n, 3\]$",
    ),
    "more tags than symbols": (
        lambda: of_task(TokenClassification(), [[0, 1, 2]] * 4, torch.int64),
        r"^dataset=Mine: samples \[4, 2\] with targets \[4, 3\]; allowed: a class for every symbol, \[4, 2\]$",
    ),
    "tag of no class": (
        lambda: of_task(TokenClassification(), [[0, 3]] * 4, torch.int64),
        "^dataset=Mine: a target is 3; allowed: integers from 0 to 2$",
    ),
}


@pytest.mark.parametrize("name", LOADED)
def test_loaded_data(name: str) -> None:
    load, message = LOADED[name]
    attributes = {"load": lambda self: load(), "spec": property(lambda self: SPEC), "__module__": "mine"}
    dataset = config_class(type("Mine", (DatasetConfig,), attributes))()
    with pytest.raises(InputError, match=message):
        prepare_federation(replace(build_experiment(compose([])), dataset=dataset))
