"""Arrays as a dataset, and an experiment on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.data import TensorDataset

import fedrun
from fedrun.data.datasets.base import Spec
from fedrun.data.partitions.natural import Natural
from fedrun.data.tasks.regression import Regression
from fedrun.data.tasks.symbols import LanguageModelling
from fedrun.system.errors import InputError


def split(count: int, dtype: str = "uint8") -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(count)
    return draw.integers(0, 256, (count, 1, 8, 8)).astype(dtype), draw.integers(0, 3, count)


def test_arrays_are_a_dataset():
    train, test = split(20), split(5)
    config = fedrun.InMemory.of(train, test, classes=3)
    dataset = config.load()
    assert config.spec == dataset.spec == Spec((1, 8, 8), 3)
    assert (dataset.train_size, dataset.users, dataset.class_names) == (20, None, ("0", "1", "2"))
    assert dataset.inputs.dtype == torch.uint8
    assert np.array_equal(dataset.inputs[20:], test[0])
    assert dataset.targets.tolist() == [*train[1], *test[1]]
    assert dataset.encoding(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])
    features = fedrun.InMemory.of(split(20, "float32"), split(5, "float32"), classes=3).load()
    assert features.encoding(torch.tensor([0.0, 51.0])).tolist() == [0, 51]
    assert features.fingerprint != dataset.fingerprint


def test_integers_of_two_types_are_classes():
    """NumPy's common type of uint64 and int64 is float64."""
    (images, classes), test = split(20), split(5)
    mixed = fedrun.InMemory.of((images, classes.astype(np.uint64)), test, classes=3).load()
    same = fedrun.InMemory.of((images, classes), test, classes=3).load()
    assert mixed.targets.dtype == torch.int64 and mixed.fingerprint == same.fingerprint


def test_an_experiment_on_arrays(default_experiment):
    images, classes = split(40)
    own = fedrun.InMemory.of((images, classes), split(10), classes=3)
    simulation = fedrun.Simulation(
        replace(default_experiment, dataset=own, partition=fedrun.option("partition", "iid", clients=8))
    )
    state, _ = simulation.advance(simulation.initial())
    assert simulation.federation.train.sizes.sum() == 40
    assert simulation.network.layout.classes == 3
    assert 0 <= simulation.test(state)["test/accuracy"] <= 1


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (
            split(4, "int64"),
            split(4),
            r"^train: samples are int64; allowed: uint8 or float32, the same in both splits, or integers \[n, length\] "
            r"with a vocabulary$",
        ),
        (split(4), split(4, "float32"), r"^test: samples are float32; allowed"),
        (
            split(4),
            (split(4)[0][:, :, 1:], split(4)[1]),
            r"^test: samples \[4, 1, 7, 8\] .* allowed: \[n, 1, 8, 8\] with",
        ),
        ((split(4)[0], split(5)[1]), split(4), r"^train: samples \[4, 1, 8, 8\] with targets \[5\] of int64"),
        ((split(4)[0], split(4)[1] / 2), split(4), r"^train: .* with targets \[4\] of float64"),
        (
            (split(4)[1].astype("uint8"), split(4)[1]),
            split(4),
            r"^train: samples \[4\]; allowed: \[n, \.\.\.\], numbers",
        ),
        (
            (split(4)[0][:0], split(4)[1][:0]),
            (split(4)[0][:0], split(4)[1][:0]),
            r"^train: samples \[0, 1, 8, 8\]; allowed: \[n, \.\.\.\], numbers for each of n > 0 samples$",
        ),
        (split(4), (split(4)[0], split(4)[1] * 0 + 3), r"^test: sample 0 has label 3; labels are 0 to 2$"),
    ],
)
def test_arrays_that_cannot_be_used(train, test, message):
    with pytest.raises(InputError, match=message):
        fedrun.InMemory.of(train, test, classes=3)


TEXTS = np.array([[1, 2, 9, 9], [3, 9, 9, 9], [4, 4, 4, 4]])
"""Texts of two, one and four symbols; 9 fills them up."""


def test_texts_have_a_vocabulary():
    labels = np.array([0, 1, 1])
    config = fedrun.InMemory.of((TEXTS, labels), (TEXTS.astype(np.uint8), labels), 2, vocabulary=10, padding=9)
    assert config.spec == Spec((4,), 2, vocabulary=10, padding=9)
    dataset = config.load()
    assert (dataset.inputs.dtype, dataset.inputs.tolist()) == (torch.int32, [*TEXTS.tolist(), *TEXTS.tolist()])
    assert dataset.encoding(dataset.inputs[:1]).dtype == torch.int64
    others = [{"vocabulary": 11, "padding": 9}, {"vocabulary": 10, "padding": 8}, {"vocabulary": 10}]
    known = {fedrun.InMemory.of((TEXTS, labels), (TEXTS, labels), 2, **other).load().fingerprint for other in others}
    assert len(known | {dataset.fingerprint}) == 4


def test_an_experiment_on_texts(default_experiment):
    """The next symbol of a text of 8 repeated ones: every fourth symbol is the same."""
    texts = (np.arange(40)[:, None] + np.arange(9)) % 4
    split = (texts[:, :-1], texts[:, 1:])
    own = fedrun.InMemory.of(split, split, classes=4, vocabulary=4, task=LanguageModelling())
    model = fedrun.option("model", "leaf_shakespeare_lstm", symbol_dim=3, embedding_dim=6, layers=1)
    partition = fedrun.option("partition", "iid", clients=4)
    local = replace(default_experiment.local, lr=1.0)
    simulation = fedrun.Simulation(
        replace(
            default_experiment,
            dataset=own,
            model=model,
            partition=partition,
            local=local,
            clients_per_round=1.0,
            targets=(),
        )
    )
    state = simulation.initial()
    for _ in range(60):
        state, _ = simulation.advance(state)
    assert simulation.test(state)["test/token_accuracy"] > 0.95


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (
            TEXTS,
            {"vocabulary": 9},
            "^train: symbols from 1 to 9; allowed: 0 to 8, because the vocabulary has 9 symbols$",
        ),
        (
            TEXTS - 2,
            {"vocabulary": 9},
            "^train: symbols from -1 to 7; allowed: 0 to 8, because the vocabulary has 9 symbols$",
        ),
        (TEXTS / 1, {"vocabulary": 10}, r"^train: samples \[3, 4\] are float64; allowed with vocabulary=10: integers"),
        (TEXTS[0], {"vocabulary": 10}, r"^train: samples \[4\] are int64; .*: integers \[n, length\]$"),
        (TEXTS, {"vocabulary": 0}, "^vocabulary=0: allowed: the number of symbols, at least 1, or None$"),
        (TEXTS, {"vocabulary": 10, "padding": 10}, "^padding=10: allowed: a symbol from 0 to 9, or None$"),
        (TEXTS, {"padding": 9}, "^padding=9 without vocabulary; allowed: None, or a vocabulary$"),
    ],
)
def test_texts_that_cannot_be_used(texts, settings, message):
    labels = np.zeros(len(texts), dtype=int)
    with pytest.raises(InputError, match=message):
        fedrun.InMemory.of((texts, labels), (texts, labels), 2, **settings)


def test_one_class_cannot_be_learned():
    images, labels = split(4)
    with pytest.raises(InputError, match=r"^classes=1: allowed: an integer, at least 2$"):
        fedrun.InMemory.of((images, labels * 0), (images, labels * 0), classes=1)


def test_classes_are_an_integer_of_any_type():
    images, labels = split(4)
    assert fedrun.InMemory.of((images, labels), (images, labels), classes=np.int64(3)).spec.classes == 3
    with pytest.raises(InputError, match=r"^classes=3\.0: allowed: an integer, at least 2$"):
        fedrun.InMemory.of((images, labels), (images, labels), classes=3.0)


class Pairs(torch.utils.data.Dataset):
    def __init__(self, images: np.ndarray, classes: np.ndarray) -> None:
        self.images, self.classes = images, classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(self.images[number]), int(self.classes[number])


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        yield torch.zeros(2), 0


def test_tensors_mappings_and_datasets_of_pytorch_are_the_same_data():
    train, test = split(20), split(5)
    expected = fedrun.InMemory.of(train, test, classes=3).load().fingerprint
    tensors = tuple(map(torch.from_numpy, train))
    assert fedrun.InMemory.of(tensors, test, classes=3).load().fingerprint == expected
    tracked = (torch.ones(5, 2, requires_grad=True), test[1])
    assert fedrun.InMemory.of(tracked, tracked, classes=3).load().inputs.tolist() == [[1, 1]] * 10
    mapping = dict(zip(("inputs", "targets"), tensors, strict=True))
    assert fedrun.InMemory.of(mapping, test, classes=3).load().fingerprint == expected
    assert fedrun.InMemory.of(Pairs(*train), Pairs(*test), classes=3).load().fingerprint == expected


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"x": 1}, r"^train: a mapping with x; allowed: inputs, targets$"),
        (3, r"^train: int; allowed: a pair of samples and targets, a mapping with inputs and targets, or a PyTorch"),
        (Pairs([np.zeros((2, 2)), np.zeros((2, 3))], [0, 1]), r"^train: .* always of the same shape, and its target$"),
        (Pairs([], []), r"^train: a PyTorch dataset without samples; allowed: at least one$"),
        ({1: 2}, r"^train: a mapping with 1; allowed: inputs, targets$"),
        (Stream(), r"^train: Stream has no length; allowed: a PyTorch dataset with a length$"),
        (TensorDataset(torch.zeros(4, 2)), r"^train: item 0 is a tuple; allowed: pairs of sample and target$"),
        (([[1, 2], [3]], [0, 1]), r"^train: .*; allowed: arrays or tensors of numbers, all samples of one shape$"),
        ((torch.zeros(4, 2), torch.zeros(4, device="meta")), "^train: a tensor of the device meta has no numbers; "),
        (TensorDataset(torch.zeros(4, 2, device="meta"), torch.zeros(4)), "^train: a tensor of the device meta has "),
        ((torch.zeros(4, 2).to_sparse(), [0] * 4), "^train: can't convert Sparse layout tensor to numpy.*; allowed: "),
        ((torch.zeros(4, 2, dtype=torch.bfloat16), [0] * 4), r"^train: .*; allowed: arrays or tensors of numbers"),
    ],
)
def test_other_kinds_of_samples(train, message):
    with pytest.raises(InputError, match=message):
        fedrun.InMemory.of(train, split(4), classes=3)


def test_samples_belong_to_users():
    images, classes = split(5)
    dataset = fedrun.InMemory.of((images, classes), split(3), classes=3, users=["b", "a", "b", "c", "a"]).load()
    assert (dataset.users.names, dataset.users.training) == (("a", "b", "c", "test"), 3)
    assert dataset.users.offsets.tolist() == [0, 2, 4, 5, 8]
    assert np.array_equal(dataset.inputs[:5], images[[1, 4, 0, 2, 3]])
    assert dataset.targets[:5].tolist() == classes[[1, 4, 0, 2, 3]].tolist()
    federation = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=1, seed=0).split(dataset, seed=0)
    assert federation.train.sizes.tolist() == [2, 2, 1]
    assert federation.test.samples.tolist() == [5, 6, 7]
    known = dataset.fingerprint
    dataset = fedrun.InMemory.of((images, classes), split(3), classes=3, users=torch.tensor([2, 1, 2, 10, 1])).load()
    assert dataset.users.names == ("1", "2", "10", "test")
    dataset = fedrun.InMemory.of((images, classes), split(3), classes=3, users=["b", "a", "c", "b", "a"]).load()
    assert dataset.fingerprint != known
    with pytest.raises(InputError, match=r"^users: 1 for 5 training samples; allowed: one for each$"):
        fedrun.InMemory.of((images, classes), split(3), classes=3, users=["a"])
    with pytest.raises(InputError, match=r"^users=5: allowed: a list or an array of names, one for each"):
        fedrun.InMemory.of((images, classes), split(3), classes=3, users=5)


def test_numbers_to_predict():
    features, numbers = np.ones((4, 2), np.float32), np.array([[0.5], [1.5], [2.5], [3.5]])
    dataset = fedrun.InMemory.of((features, numbers), (features, numbers), classes=1, task=Regression()).load()
    assert (dataset.targets.dtype, dataset.targets[:4].flatten().tolist()) == (torch.float32, [0.5, 1.5, 2.5, 3.5])
    with pytest.raises(InputError, match="targets"):
        fedrun.InMemory.of((features, numbers), (features, numbers), classes=2, task=Regression())


@pytest.mark.parametrize(
    ("targets", "task", "message"),
    [
        (np.ones((4, 2)), Regression(), r"^test: targets \[4, 2\]; allowed: as in train, \[4, 1\]$"),
        (np.ones(4), Regression(), r"^test: targets \[4\]; allowed: as in train, \[4, 1\]$"),
        (
            np.full((4, 1), "x"),
            Regression(),
            r"^test: samples .* of text; allowed: \[n, 2\] with numbers \[n, \.\.\.\]$",
        ),
        (np.full((4, 1), None), Regression(), r"^test: samples .* of object; allowed"),
        (np.ones((4, 1)), "regression", r"^task='regression': allowed: a task, such as fedrun"),
        (np.ones((4, 1)), Regression, r"^task=<class .*Regression'>: allowed: a task, such as fedrun"),
    ],
)
def test_numbers_that_cannot_be_predicted(targets, task, message):
    features = np.ones((4, 2), np.float32)
    with pytest.raises(InputError, match=message):
        fedrun.InMemory.of((features, np.ones((4, 1))), (features, targets), classes=1, task=task)


def test_categories_are_what_their_values_are():
    """A column of categories has its values once, and a number for each row."""
    plain = {"client": ["x", "y", "x"], "y": [8, 3, 8], "a": [5, 7, 5], "b": [True, False, True], "c": [0.5, None, 2.0]}
    table = pa.table({name: pa.array(values).dictionary_encode() for name, values in plain.items()})
    columns = fedrun.option("dataset", "tabular", label="y", standardise=False)
    dataset = fedrun.InMemory.of_table(table.drop_columns("c"), columns).load()
    assert dataset.users.names == ("x", "y")
    assert (dataset.inputs.tolist(), dataset.class_names) == ([[5, 1], [5, 1], [7, 0]], ("3", "8"))
    assert dataset.targets.tolist() == [1, 1, 0]
    with pytest.raises(InputError, match=r"inputs without a finite number in some rows: c \(row 2\)"):
        fedrun.InMemory.of_table(table, columns)


def test_a_data_frame():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1.0, 2.0, 3.0], "ward": ["y", "x", "y"], "outcome": ["dead", "alive", "dead"]})
    columns = fedrun.option("dataset", "tabular", label="outcome", client="ward", standardise=False)
    dataset = fedrun.InMemory.of_table(frame, columns).load()
    assert dataset.users.names == ("x", "y")
    assert (dataset.class_names, dataset.targets.tolist()) == (("alive", "dead"), [0, 1, 1])
    assert dataset.inputs.flatten().tolist() == [2, 1, 3]
    with pytest.raises(InputError, match=r"^the table: dataset.label: which column is predicted"):
        fedrun.InMemory.of_table(frame, fedrun.option("dataset", "tabular"))
    with pytest.raises(InputError, match=r"^the table cannot be read: .*age"):
        fedrun.InMemory.of_table(frame.assign(age=[1, "old", 2]), columns)
    with pytest.raises(InputError, match=r"^the table cannot be read: Duplicate column names"):
        fedrun.InMemory.of_table(pandas.concat([frame, frame], axis=1), columns)
    with pytest.raises(InputError, match=r"^the table cannot be read: Sparse pandas data \(column age\)"):
        fedrun.InMemory.of_table(frame.assign(age=pandas.arrays.SparseArray([1.0, 0.0, 2.0])), columns)
    with pytest.raises(InputError, match=r"^table: dict; allowed: a table of pandas or pyarrow$"):
        fedrun.InMemory.of_table({"age": [1.0]}, columns)
    with pytest.raises(InputError, match=r"^columns: Digits; allowed: a dataset option for tables"):
        fedrun.InMemory.of_table(frame, fedrun.option("dataset", "digits"))


def test_the_same_arrays_with_more_classes_are_other_data() -> None:
    """Folders of runs are named by the fingerprint."""
    arrays = (np.zeros((4, 2), dtype=np.float32), np.array([0, 1, 2, 1]))
    prints = [fedrun.InMemory.of(arrays, arrays, classes=classes).load().fingerprint for classes in (3, 3, 4, 10)]
    assert prints[0] == prints[1] and len(set(prints)) == 3
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1.0, 2.0, 3.0, 4.0], "outcome": [0, 1, 2, 1]})
    options = (fedrun.option("dataset", "tabular", label="outcome", classes=classes) for classes in (None, 3, 10))
    prints = [fedrun.InMemory.of_table(frame, columns).load().fingerprint for columns in options]
    assert prints[0] == prints[1] != prints[2]


def test_the_same_arrays_with_another_task_are_other_data() -> None:
    inputs, targets = np.zeros((4, 2), dtype=np.float32), np.arange(4, dtype=np.float32)[:, None]
    tasks = (Regression(), Regression(std=(2.0,)))
    first, second = (
        fedrun.InMemory.of((inputs, targets), (inputs, targets), classes=1, task=task).load().fingerprint
        for task in tasks
    )
    assert first != second
    again = fedrun.InMemory.of((inputs, targets), (inputs, targets), classes=1, task=tasks[0])
    assert again.load().fingerprint == first
