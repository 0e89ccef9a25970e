import numpy as np
import pytest

from fedrun.data.partitions.clusters import Clusters
from fedrun.system.errors import InputError


def test_maxfls_five_clusters_of_two_labels(make_dataset):
    labels = np.random.default_rng(0).permutation(np.arange(6000) % 10)
    partition = Clusters(clients=50, clusters=5, labels_per_cluster=2, seed=None)
    federation, another = (partition.split(make_dataset([*labels, 0], 6000), seed) for seed in (0, 1))
    train, other = federation.train, another.train
    assert federation.note == ""
    groups, others = ([sorted(set(labels[each[k].numpy()].tolist())) for k in range(50)] for each in (train, other))
    for first in range(0, 10, 2):
        assert groups.count([first, first + 1]) == 10  # equally many clients, each with both labels
    assert train.sizes.tolist() == [120] * 50  # 1200 samples per cluster, 10 clients
    assert others != groups != sorted(groups)  # assigned at random


def test_clients_and_samples_that_do_not_divide_and_unused_labels(make_dataset):
    labels = [0] * 7 + [1] * 20 + [2] * 9  # label 2 belongs to no cluster
    partition = Clusters(clients=5, clusters=2, labels_per_cluster=1, seed=None)
    federation = partition.split(make_dataset([*labels, 0], 36), 3)
    assert federation.note == "1 of 3 labels are in no cluster; only the test has their samples"
    train = federation.train
    own = [{labels[sample] for sample in train[client].tolist()} for client in range(5)]
    # 5 clients on 2 clusters: 3 and 2; 7 samples on 3 clients: 3 2 2; 20 samples on 2: 10 10
    sizes = {label: [int(train.sizes[client]) for client in range(5) if own[client] == {label}] for label in (0, 1)}
    assert sizes == {0: [3, 2, 2], 1: [10, 10]}


def test_refusals(make_dataset):
    dataset = make_dataset([0, 1, 2, 3] * 5 + [0], 20)
    with pytest.raises(InputError, match="clusters=3 with labels_per_cluster=2 needs 6 classes, the dataset has 4"):
        Clusters(clients=3, clusters=3, labels_per_cluster=2, seed=0).split(dataset, 0)
    with pytest.raises(InputError, match="clusters=4 needs at least as many clients, not 3"):
        Clusters(clients=3, clusters=4, labels_per_cluster=1, seed=0).split(dataset, 0)
    with pytest.raises(InputError, match="cluster 1 has 1 samples for 2 clients; use fewer clients"):
        Clusters(clients=4, clusters=2, labels_per_cluster=1, seed=0).split(make_dataset([0] * 9 + [1, 0], 10), 0)
