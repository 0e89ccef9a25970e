import numpy as np
import pytest

from fedrun.data.partitions.iid_class_exact import IIDClassExact
from fedrun.system.errors import InputError


def test_every_client_has_its_part_of_every_class(make_dataset):
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [10, 20, 5]))
    train = IIDClassExact(clients=5, seed=None).split(make_dataset([*labels, 0], 35), 0).train
    assert [np.bincount(labels[train[client].numpy()]).tolist() for client in range(5)] == [[2, 4, 1]] * 5


def test_a_number_of_clients_that_does_not_divide_a_class_is_refused(make_dataset):
    with pytest.raises(InputError, match="clients=4 does not divide the 6 training samples of class 1"):
        IIDClassExact(clients=4, seed=0).split(make_dataset([0] * 8 + [1] * 6 + [0], 14), 0)
