"""The partition of data that may have users or not."""

from __future__ import annotations

import pytest

from fedrun.data.partitions.iid import IID
from fedrun.data.partitions.natural import Natural
from fedrun.data.partitions.users_or_iid import UsersOrIID
from fedrun.system.errors import InputError

USERS = {"sample_fraction": 1.0, "train_fraction": 0.5, "min_samples": 2}
EITHER = UsersOrIID(**USERS, clients=3, seed=0)


def test_samples_of_users_are_divided_as_by_natural(make_dataset):
    dataset = make_dataset([0, 1] * 5, 10, user_sizes=[3, 2, 4, 1])  # the last user is too small
    federation, natural = EITHER.split(dataset, 5), Natural(**USERS, seed=0).split(dataset, 5)
    assert federation.train.names == natural.train.names and federation.test.names == natural.test.names
    assert federation.train.samples.equal(natural.train.samples)
    assert federation.note == "as natural: a client is a user"
    with pytest.raises(InputError, match=r"^partition=users_or_iid: no training user is left of 1 users"):
        EITHER.split(make_dataset([0, 1], 2, user_sizes=[2]), 0)


def test_samples_without_users_are_divided_as_by_iid(make_dataset):
    dataset = make_dataset([0, 1] * 5, 8)
    federation = EITHER.split(dataset, 5)
    assert federation.train.samples.equal(IID(clients=3, seed=0).split(dataset, 5).train.samples)
    assert federation.train.sizes.tolist() == [3, 3, 2]  # 8 training samples
    assert federation.note == "as iid: samples have no users"
    with pytest.raises(InputError, match=r"^partition=users_or_iid: clients=3 needs at least 3 training samples"):
        EITHER.split(make_dataset([0, 1, 1], 2), 0)
