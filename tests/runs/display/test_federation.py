import subprocess
import sys
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
import torch

from fedrun.data.datasets.base import Dataset, Scaled, Spec, Users
from fedrun.data.federation import ClientIndices, Federation
from fedrun.runs.display.federation import COLUMNS, plot_labels, plot_sizes, summarise


def federation_of(labels, parts, test_parts, classes, names=None):
    targets = torch.tensor(np.asarray(labels), dtype=torch.int64)
    names = tuple(map(str, range(classes))) if names is None else names
    inputs = torch.zeros(len(targets), 1, dtype=torch.uint8)
    dataset = Dataset(Spec((1,), classes), Scaled(1.0), inputs, targets, len(targets), None, names, "test")
    return Federation(
        dataset,
        ClientIndices.of([np.array(part) for part in parts]),
        ClientIndices.of([np.array(p) for p in test_parts]),
    )


def many_clients(clients, classes):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, clients)
    parts = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    return federation_of(rng.integers(0, classes, sizes.sum()), parts, [[0]], classes)


SMALL = federation_of([0, 0, 1, 3, 1, 1, 0, 2], [[0, 1, 2], [5, 3], [4]], [[6, 7]], 4, ("a", "b", "c", "d"))


def test_label_counts():
    counts = SMALL.train.class_counts(SMALL.dataset.targets, 4)
    assert counts.tolist() == [[2, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 0]]


def test_summary():
    assert summarise(SMALL).splitlines() == [
        "clients   3 with 1 to 3 (median 2) training samples each, 6 in all",
        "classes   1 to 2 (median 2) per client, 4 in the dataset",
        "test      2 samples in one pooled set",
        "warning: no client holds 1 of the 4 classes: c",
    ]


def test_summary_without_a_missing_class_has_no_warning():
    assert summarise(federation_of([0, 1, 0, 1, 0], [[0, 1], [2, 3]], [[4], [4]], 2)).splitlines() == [
        "clients   2 with 2 training samples each, 4 in all",
        "classes   2 per client, 2 in the dataset",
        "test      2 samples of 2 held-out users",
    ]


@pytest.mark.parametrize(
    ("train", "test", "words"),
    [
        (("a", "b"), ("test",), "in one pooled set"),
        (("a", "b"), ("c",), "of 1 held-out user"),
        (("a", "b"), ("b",), "of 1 user, who also trains"),
        (("a", "b"), ("a", "b"), "of 2 users, who also train"),
        (("a", "b"), ("b", "c"), "of 2 users, 1 of whom also trains"),
        (("a", "b"), ("a", "b", "c"), "of 3 users, 2 of whom also train"),
    ],
)
def test_whose_samples_are_the_test(train, test, words):
    parts = [[index] for index in range(len(test))]
    federation = federation_of([0, 1, 0, 1], [[2], [3]], parts, 2)
    named = replace(federation, train=replace(federation.train, names=train), test=replace(federation.test, names=test))
    assert summarise(named).splitlines()[2] == f"test      {len(test)} samples {words}"


def test_users_whose_samples_several_clients_divide_also_train():
    """Users a and b have two training samples each and one for the test; partition=domains names clients a/0, a/1."""
    federation = federation_of([0, 1, 0, 1, 0, 1], [[0], [1], [2], [3]], [[4], [5]], 2)
    users = Users(("a", "b", "a", "b"), torch.tensor([0, 2, 4, 5, 6]), 2)
    divided = replace(
        federation,
        dataset=replace(federation.dataset, users=users),
        train=replace(federation.train, names=("a/0", "a/1", "b/0", "b/1")),
        test=replace(federation.test, names=("a", "b")),
    )
    assert summarise(divided).splitlines()[2] == "test      2 samples of 2 users, who also train"


def test_the_clients_own_tests_are_named():
    own = replace(SMALL, client_test=ClientIndices.of([np.array([6, 7]), np.array([], int), np.array([5])]))
    line = "test      2 samples in one pooled set; clients' own tests: 0 to 2 (median 1) samples each, 3 in all"
    assert summarise(own).splitlines()[2] == line


def test_a_long_list_of_missing_classes_is_cut():
    warning = summarise(federation_of([0], [[0]], [[0]], 14, (" ", *"abcdefghijklm"))).splitlines()[-1]
    assert warning == "warning: no client holds 13 of the 14 classes: a, b, c, d, e, f, g, h, i, j, ..."


@pytest.mark.parametrize(("clients", "classes"), [(10, 10), (3550, 2), (COLUMNS + 1, 80), (1, 200)])
def test_heat_map_is_a_readable_png(tmp_path, clients, classes):
    path = tmp_path / "labels.png"
    plot_labels(many_clients(clients, classes), path)
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[1] == 1350 and 350 <= pixels.shape[0] <= 1650
    sparse = pixels[::9, ::9].reshape(-1, pixels.shape[2])
    assert len(np.unique(sparse, axis=0)) > 10  # it is coloured


def test_importing_the_report_does_not_load_matplotlib():
    code = "import sys, fedrun.runs.display.federation; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("sizes", [(1,), (5, 1, 3), (1, 10_000), (0, 2), ()])
def test_the_picture_of_sizes_is_written(tmp_path, sizes):
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]) if sizes else []
    plot_sizes(federation_of([0] * sum(sizes), parts, [[]], classes=2), tmp_path / "sizes.png")
    picture = matplotlib.image.imread(tmp_path / "sizes.png")
    assert picture.shape[0] > 300 and picture.min() < 0.5


def test_classes_that_the_font_lacks_are_no_warning(tmp_path, recwarn):
    plot_labels(federation_of([0, 1], [[0], [1]], [[0]], 2, ("猫", "犬")), tmp_path / "labels.png")
    assert (tmp_path / "labels.png").exists()
    assert not recwarn.list
