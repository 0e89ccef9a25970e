import random

import numpy as np
import pytest

from fedrun.data.partitions.labels import Labels
from fedrun.system.errors import InputError


def classes_held(federation, labels):
    return [set(np.asarray(labels)[federation.train[client].numpy()]) for client in range(len(federation.train))]


def naive(labels, classes, clients, k, seed):
    """NIID-Bench's algorithm, with the global generators it uses."""
    random.seed(seed)
    np.random.seed(seed)
    times, contain = [0] * classes, []
    for i in range(clients):
        current = [i % classes]
        times[i % classes] += 1
        j = 1
        while j < k:
            ind = random.randint(0, classes - 1)
            if ind not in current:
                j += 1
                current.append(ind)
                times[ind] += 1
        contain.append(current)
    held = [[] for _ in range(clients)]
    for label in range(classes):
        members = np.array([sample for sample, own in enumerate(labels) if own == label], dtype=np.int64)
        np.random.shuffle(members)
        parts = iter(np.array_split(members, times[label]))
        for client in range(clients):
            if label in contain[client]:
                held[client] += next(parts).tolist()
    return held


@pytest.mark.parametrize(
    ("samples", "classes", "clients", "k", "seed"),
    [(1000, 10, 10, 2, 1), (1003, 10, 25, 3, 0), (500, 4, 6, 4, 2), (300, 10, 10, 1, 3), (900, 300, 301, 2, 4)],
)
def test_equals_nested_loops_index_by_index(make_dataset, samples, classes, clients, k, seed):
    labels = np.random.default_rng(seed).permutation(np.arange(samples) % classes)
    train = (
        Labels(clients=clients, labels_per_client=k, seed=None).split(make_dataset([*labels, 0], samples), seed).train
    )
    assert [train[client].tolist() for client in range(clients)] == naive(labels, classes, clients, k, seed)


def test_the_first_clients_of_fedconcats_appendix(make_dataset):
    labels = np.arange(1000) % 10
    federation = Labels(clients=10, labels_per_client=2, seed=1).split(make_dataset([*labels, 0], 1000), 0)
    assert classes_held(federation, labels)[:4] == [{0, 2}, {1, 9}, {2, 1}, {3, 4}]


def test_with_all_classes_each_is_split_over_all_clients(make_dataset):
    labels = np.arange(120) % 3  # 40 of each: 14, 13, 13
    train = Labels(clients=3, labels_per_client=3, seed=0).split(make_dataset([*labels, 0], 120), 0).train
    counts = [np.bincount(labels[train[client].numpy()]).tolist() for client in range(3)]
    assert counts == [[14, 14, 14], [13, 13, 13], [13, 13, 13]]


def test_refusals(make_dataset):
    dataset = make_dataset([*np.arange(30) % 5, 0], 30)
    with pytest.raises(InputError, match="labels_per_client=6 is more than the dataset's 5 classes"):
        Labels(clients=5, labels_per_client=6, seed=0).split(dataset, 0)
    with pytest.raises(InputError, match="no client owns class 2, .* lost; allowed: at least 5 clients"):
        Labels(clients=2, labels_per_client=1, seed=0).split(dataset, 0)
    with pytest.raises(InputError, match="2 of clients=12 have no sample"):
        # class 0 has 4 samples for its 6 owners
        Labels(clients=12, labels_per_client=1, seed=0).split(make_dataset([0] * 4 + [1] * 26 + [0], 30), 0)
