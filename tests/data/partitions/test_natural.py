import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrun.data.datasets.in_memory import InMemory
from fedrun.data.partitions.natural import Natural
from fedrun.system.errors import InputError


def test_the_publishers_split_is_kept(make_dataset):
    # users 0..3 hold samples [0 1 2], [3], [4 5], [6 7 8 9]; the publisher trains on the first two
    dataset = make_dataset([0, 1] * 5, 4, user_sizes=[3, 1, 2, 4], training_users=2)
    federation = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=1, seed=0).split(dataset, 5)
    assert [federation.train[k].tolist() for k in range(len(federation.train))] == [[0, 1, 2], [3]]
    assert [federation.test[k].tolist() for k in range(len(federation.test))] == [[4, 5], [6, 7, 8, 9]]
    assert federation.train.names == ("user0", "user1")
    assert federation.test.names == ("user2", "user3")


def test_small_users_are_dropped_in_training_and_test(make_dataset):
    dataset = make_dataset([0, 1] * 5, 4, user_sizes=[3, 1, 2, 4], training_users=2)
    federation = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=3, seed=0).split(dataset, 0)
    assert federation.train.names == ("user0",) and federation.train[0].tolist() == [0, 1, 2]
    assert federation.test.names == ("user3",) and federation.test[0].tolist() == [6, 7, 8, 9]


def test_users_who_are_too_small_for_the_dataset_count_in_the_split(make_dataset):
    """As in TurboSVM-FL: LEAF's draw is among all users; then those with fewer than 3 samples go, from both sides."""
    sizes = [1, 2, 3, 4] * 10
    dataset = make_dataset([0] * sum(sizes), sum(sizes), user_sizes=sizes)
    dataset = replace(dataset, users=replace(dataset.users, min_samples=3))
    federation = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=1, seed=0).split(dataset, 0)
    chosen = set(random.Random(0).sample(range(40), 36))
    assert federation.train.names == tuple(f"user{user}" for user in range(40) if user in chosen and sizes[user] >= 3)
    assert federation.test.names == tuple(
        f"user{user}" for user in range(40) if user not in chosen and sizes[user] >= 3
    )
    stricter = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=4, seed=0).split(dataset, 0)
    assert set(stricter.train.sizes.tolist()) == {4}


@given(
    sizes=st.lists(st.integers(0, 6), min_size=2, max_size=40),
    seed=st.integers(0, 20),
    fraction=st.sampled_from([0.5, 0.9]),
)
def test_without_a_publishers_split_users_are_drawn_as_in_leaf(make_dataset, sizes, seed, fraction):
    sizes = [3, *sizes, 3]
    chosen = set(random.Random(seed).sample(range(len(sizes)), int(fraction * len(sizes))))
    starts = [sum(sizes[:user]) for user in range(len(sizes))]
    train = [user for user in range(len(sizes)) if user in chosen and sizes[user] >= 2]
    test = [user for user in range(len(sizes)) if user not in chosen and sizes[user] >= 2]
    dataset = make_dataset([0] * sum(sizes), sum(sizes), user_sizes=sizes)
    partition = Natural(sample_fraction=1.0, train_fraction=fraction, min_samples=2, seed=None)
    if not (train and test):
        with pytest.raises(InputError, match="user is left"):
            partition.split(dataset, seed)
        return
    federation = partition.split(dataset, seed)
    for clients, users in ((federation.train, train), (federation.test, test)):
        assert clients.names == tuple(f"user{user}" for user in users)
        expected = [list(range(starts[user], starts[user] + sizes[user])) for user in users]
        assert [clients[k].tolist() for k in range(len(clients))] == expected


def test_leafs_published_numbers_of_users(make_dataset):
    for users, expected in ((3550, (3195, 355)), (9343, (8408, 935)), (1129, (1016, 113)), (660, (594, 66))):
        dataset = make_dataset([0] * users, users, user_sizes=[1] * users)
        federation = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=1, seed=0).split(dataset, 0)
        assert (len(federation.train), len(federation.test)) == expected


def test_seed_zero_is_not_the_runs_seed(make_dataset):
    dataset = make_dataset([0] * 50, 50, user_sizes=[1] * 50)

    def names(own, run):
        return Natural(sample_fraction=1.0, train_fraction=0.5, min_samples=1, seed=own).split(dataset, run).train.names

    assert names(0, 1) == names(0, 2) == names(None, 0) != names(None, 1)


def test_refusals(make_dataset):
    natural = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=1, seed=0)
    with pytest.raises(InputError, match="users, and this one has none; allowed: another partition"):
        natural.split(make_dataset([0, 1], 1), 0)
    with pytest.raises(
        InputError, match="no training user is left of 1 users with sample_fraction=1, train_fraction=0.9"
    ):
        natural.split(make_dataset([0, 1], 2, user_sizes=[2]), 0)
    with pytest.raises(InputError, match="no test user is left of 2 users.* and at least 2 samples"):
        Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=2, seed=0).split(
            make_dataset([0, 1, 1], 2, user_sizes=[2, 1], training_users=1), 0
        )


@given(sizes=st.lists(st.integers(1, 6), min_size=8, max_size=30), seed=st.integers(0, 20))
def test_users_are_drawn_until_they_have_their_share_of_the_samples(make_dataset, sizes, seed):
    dataset = make_dataset([0] * sum(sizes), sum(sizes), user_sizes=sizes)
    order = list(range(len(sizes)))
    random.Random(seed).shuffle(order)
    drawn, total = [], 0
    for user in order:
        if total < 0.5 * sum(sizes):
            drawn.append(user)
            total += sizes[user]
    drawn.sort()
    chosen = {drawn[place] for place in random.Random(seed).sample(range(len(drawn)), int(0.7 * len(drawn)))}
    federation = Natural(sample_fraction=0.5, train_fraction=0.7, min_samples=1, seed=None).split(dataset, seed)
    assert federation.train.names == tuple(f"user{user}" for user in drawn if user in chosen)
    assert federation.test.names == tuple(f"user{user}" for user in drawn if user not in chosen)


def test_a_user_in_both_splits_is_drawn_or_left_out_as_a_whole(make_dataset):
    dataset = make_dataset([0] * 40, 20, user_sizes=[1] * 40, training_users=20)
    names = tuple(f"user{user % 20}" for user in range(40))
    dataset = replace(dataset, users=replace(dataset.users, names=names))
    federation = Natural(sample_fraction=0.5, train_fraction=0.9, min_samples=1, seed=0).split(dataset, 0)
    assert len(federation.train) == 10
    assert federation.train.names == federation.test.names


@pytest.mark.parametrize("seed", range(6))
def test_a_test_split_without_users_is_kept_whole(seed):
    """Of 40 samples of four persons 20 are those of two, whichever are drawn; the test is none of the persons."""
    owners = [person for person in ("a", "b", "c", "test") for _ in range(10)]
    train, test = (np.zeros((count, 2), np.float32) for count in (40, 30))
    own = InMemory.of((train, np.arange(40) % 2), (test, np.arange(30) % 2), 2, users=owners)
    partition = Natural(sample_fraction=0.5, train_fraction=0.9, min_samples=10, seed=seed)
    federation = partition.split(own.load(), 0)
    assert federation.train.sizes.tolist() == [10, 10]
    assert federation.test.samples.tolist() == list(range(40, 70)) and federation.test.names == ("test",)
    few = InMemory.of((train, np.arange(40) % 2), (test[:9], np.arange(9) % 2), 2, users=owners)
    assert partition.split(few.load(), 0).test.sizes.tolist() == [9]
