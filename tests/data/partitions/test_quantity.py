import numpy as np
import pytest

from fedrun.data.partitions import quantity_dirichlet
from fedrun.data.partitions.index_groups import lognormal_sizes
from fedrun.data.partitions.quantity_dirichlet import QuantityDirichlet
from fedrun.data.partitions.quantity_lognormal import QuantityLognormal
from fedrun.system.errors import InputError


def niid_bench(samples, clients, beta, min_samples, seed):
    np.random.seed(seed)
    order = np.random.permutation(samples)
    smallest = 0
    while smallest < min_samples:
        p = np.random.dirichlet(np.repeat(beta, clients))
        p = p / p.sum()
        smallest = np.min(p * samples)
    bounds = [0, *[int(reached * samples) for reached in np.cumsum(p)[:-1]], samples]
    return [order[bounds[client] : bounds[client + 1]].tolist() for client in range(clients)]


@pytest.mark.parametrize(
    ("samples", "clients", "beta", "min_samples", "seed"),
    [(1000, 10, 0.5, 10, 0), (777, 5, 0.2, 3, 1), (60, 1, 1.0, 1, 2)],
)
def test_dirichlet_equals_niid_bench_index_by_index(make_dataset, samples, clients, beta, min_samples, seed):
    partition = QuantityDirichlet(clients=clients, beta=beta, min_samples=min_samples, seed=None)
    train = partition.split(make_dataset([0] * samples + [1], samples), seed).train
    assert [train[client].tolist() for client in range(clients)] == niid_bench(
        samples, clients, beta, min_samples, seed
    )


def test_niid_benchs_setting_of_100_clients(make_dataset):
    """50 000 samples with beta = 0.5 and a minimum of 10 take 40 690 draws with seed 0."""
    partition = QuantityDirichlet(clients=100, beta=0.5, min_samples=10, seed=0)
    train = partition.split(make_dataset([0] * 50_000 + [1], 50_000), 3).train
    assert train.sizes.min() >= 10
    assert [train[client].tolist() for client in range(100)] == niid_bench(50_000, 100, 0.5, 10, 0)


def test_long_drawing_is_reported(make_dataset, monkeypatch, caplog):
    monkeypatch.setattr(quantity_dirichlet, "NOTICE", 200_000)
    monkeypatch.setattr(QuantityDirichlet, "variates", 4_000_000)
    with pytest.raises(InputError, match="in each of 40000 draws"):
        QuantityDirichlet(clients=100, beta=0.1, min_samples=10, seed=0).split(make_dataset([0] * 2001, 2000), 0)
    (line,) = caplog.messages
    assert line.endswith("draws so far, drawing up to 40000")


@pytest.mark.parametrize("beta", [0.001, 1e-300])
def test_a_hopeless_dirichlet_ends_in_an_error_that_says_what_to_change(make_dataset, monkeypatch, beta):
    monkeypatch.setattr(QuantityDirichlet, "variates", 0)
    with pytest.raises(InputError, match="in each of 10000 draws some client had .* min_samples=10 .* larger beta"):
        QuantityDirichlet(clients=10, beta=beta, min_samples=10, seed=0).split(make_dataset([0] * 101, 100), 0)


def test_lognormal_sizes_by_hand():
    class Given:
        def normal(self, mean, sigma, count):
            assert (mean, sigma, count) == (0.0, 0.3, 3)
            return np.log([1.0, 2.0, 4.0])

    # 1 : 2 : 4 of 100 is 14.28.., 28.57.., 57.14..; rounded down 14, 28, 57; the one left over goes to the first
    assert lognormal_sizes(100, 3, 0.3, Given()).tolist() == [15, 28, 57]


def test_the_spread_of_lognormal_sizes(make_dataset):
    train = (
        QuantityLognormal(clients=2000, sigma=0.3, seed=None)
        .split(make_dataset([0] * 2_000_000 + [1], 2_000_000), 0)
        .train
    )
    logarithms = np.log(train.sizes[1:].numpy())  # the first also has what rounding left over
    assert abs(logarithms.std() - 0.3) < 4 * 0.3 / np.sqrt(2 * 2000)
    assert 0 <= int(train.sizes[0]) - np.exp(logarithms.mean()) < 3000


def test_sigma_zero_is_equal_sizes_within_one(make_dataset):
    train = QuantityLognormal(clients=3, sigma=0.0, seed=0).split(make_dataset([0] * 11, 10), 0).train
    assert train.sizes.tolist() == [4, 3, 3]


def test_a_spread_that_leaves_clients_without_samples_is_refused(make_dataset):
    with pytest.raises(InputError, match="sigma=50 leaves [0-9]+ of partition.clients=10 without a sample of 20"):
        QuantityLognormal(clients=10, sigma=50.0, seed=0).split(make_dataset([0] * 21, 20), 0)
