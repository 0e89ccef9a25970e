import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrun.data.partitions.shards import Shards
from fedrun.system.errors import InputError


@given(
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=60),
    clients=st.integers(1, 4),
    per_client=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_each_client_gets_whole_shards_of_the_label_sorted_samples(make_dataset, labels, clients, per_client, seed):
    dataset = make_dataset([*labels, 4], len(labels))
    train = Shards(clients=clients, shards_per_client=per_client, seed=None).split(dataset, seed).train

    by_label = sorted(range(len(labels)), key=lambda sample: (labels[sample], sample))
    count = clients * per_client
    small, larger = divmod(len(labels), count)
    shards, start = [], 0
    for shard in range(count):
        stop = start + small + (shard < larger)
        shards.append(tuple(by_label[start:stop]))
        start = stop

    for client in range(clients):
        left = train[client].tolist()
        for _ in range(per_client):
            shard = next(shard for shard in shards if tuple(left[: len(shard)]) == shard)
            shards.remove(shard)
            left = left[len(shard) :]
        assert left == []
    assert shards == []


def test_mcmahans_mnist_setting(make_dataset):
    labels = np.random.default_rng(0).permutation(np.arange(60_000) % 10)
    federation = Shards(clients=100, shards_per_client=2, seed=None).split(make_dataset([*labels, 0], 60_000), 0)
    assert federation.train.sizes.tolist() == [600] * 100
    held = [len(set(labels[federation.train[client].numpy()])) for client in range(100)]
    assert set(held) == {1, 2}  # 6000 samples per label: no shard of 300 has two labels
    assert federation.test.samples.tolist() == [60_000]


def test_deterministic_in_the_seed(make_dataset):
    dataset = make_dataset(np.arange(101) % 10, 100)

    def samples(own, run):
        return Shards(clients=10, shards_per_client=2, seed=own).split(dataset, run).train.samples.tolist()

    assert samples(None, 0) == samples(0, 1)
    assert samples(None, 0) != samples(None, 1)


def test_more_shards_than_samples_are_refused(make_dataset):
    with pytest.raises(
        InputError, match="clients=3 with shards_per_client=2 needs at least 6 training samples.* has 5"
    ):
        Shards(clients=3, shards_per_client=2, seed=0).split(make_dataset([0] * 6, 5), 0)
