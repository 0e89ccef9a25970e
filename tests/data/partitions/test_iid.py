import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrun.data.partitions.iid import IID
from fedrun.data.partitions.iid_niid_bench import IIDNiidBench
from fedrun.system.errors import InputError


@given(train=st.integers(1, 60), test=st.integers(1, 5), clients=st.integers(1, 60), seed=st.integers(0, 9))
def test_every_training_sample_has_one_client_and_sizes_are_equal_within_one(make_dataset, train, test, clients, seed):
    clients = min(clients, train)
    federation = IID(clients=clients, seed=None).split(make_dataset(np.arange(train + test) % 3, train), seed)
    assert sorted(federation.train.samples.tolist()) == list(range(train))
    sizes = federation.train.sizes.tolist()
    assert sizes == [train // clients + (client < train % clients) for client in range(clients)]
    assert federation.test.samples.tolist() == list(range(train, train + test))
    assert len(federation.test) == 1 and federation.test.name(0) == "test"


def test_the_partitions_own_seed_outranks_the_runs(make_dataset):
    dataset = make_dataset(np.arange(120) % 10, 100)

    def samples(own, run):
        return IID(clients=10, seed=own).split(dataset, run).train.samples.tolist()

    assert samples(None, 3) == samples(None, 3) == samples(3, 8)
    assert samples(None, 3) != samples(None, 4)
    assert samples(0, 3) == samples(None, 0) != samples(None, 3)


def test_a_dataset_without_a_test_split_is_refused(make_dataset):
    with pytest.raises(InputError, match=r"^partition=iid needs a dataset with a test split.*here: data with"):
        IID(clients=2, seed=0).split(make_dataset([0, 1, 2], 3), 0)
    users = make_dataset([0, 1, 2], 3, user_sizes=[2, 1])
    with pytest.raises(
        InputError, match=r"allowed here: partition=natural, .*; or .* dataset.test_share=0.2 draws some"
    ):
        IID(clients=2, seed=0).split(users, 0)


def test_more_clients_than_samples_are_refused(make_dataset):
    with pytest.raises(
        InputError, match="partition=iid: clients=4 needs at least 4 training samples, the dataset has 3"
    ):
        IID(clients=4, seed=0).split(make_dataset([0, 1, 2, 0], 3), 0)


@pytest.mark.parametrize(("samples", "clients", "seed"), [(103, 10, 0), (60, 7, 2**32 + 5)])
def test_homo_of_niid_bench_index_by_index(make_dataset, samples, clients, seed):
    np.random.seed(seed % 2**32)
    expected = np.array_split(np.random.permutation(samples), clients)
    train = IIDNiidBench(clients=clients, seed=seed).split(make_dataset([0] * samples + [1], samples), 3).train
    assert [train[client].tolist() for client in range(clients)] == [part.tolist() for part in expected]
