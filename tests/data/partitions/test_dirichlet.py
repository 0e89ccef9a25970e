import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrun.config.config_class import ArgumentError
from fedrun.data.partitions.dirichlet import Dirichlet
from fedrun.data.partitions.dirichlet_hsu import DirichletHsu
from fedrun.system.errors import InputError


def nested_loops(labels, classes, clients, beta, min_samples, seed):
    """NIID-Bench's algorithm on Python lists and NumPy's global generator, one sample at a time."""
    np.random.seed(seed)
    while True:
        held = [[] for _ in range(clients)]
        for label in range(classes):
            members = [sample for sample, own in enumerate(labels) if own == label]
            np.random.shuffle(members)
            while True:
                p = list(np.random.dirichlet([beta] * clients))
                p = [0.0 if len(held[j]) >= len(labels) / clients else p[j] for j in range(clients)]
                total = float(np.sum(p))
                if total > 0 or not members:
                    break
            reached, start = 0.0, 0
            for j in range(clients):
                if not members:
                    break
                reached += p[j] / total
                stop = len(members) if j == clients - 1 else int(reached * len(members))
                held[j] += members[start:stop]
                start = stop
        if min(map(len, held)) >= min_samples:
            break
    for client in held:
        np.random.shuffle(client)
    return held


@pytest.mark.parametrize(
    ("samples", "classes", "clients", "beta", "min_samples", "seed"),
    [(1000, 10, 10, 0.5, 10, 0), (1000, 10, 10, 0.1, 10, 1), (600, 3, 20, 0.5, 5, 2), (400, 62, 5, 5.0, 10, 3)],
)
def test_equals_nested_loops_index_by_index(make_dataset, samples, classes, clients, beta, min_samples, seed):
    labels = np.random.default_rng(seed).integers(0, classes, samples)
    labels[0] = classes - 1
    dataset = make_dataset([*labels, 0], samples)
    train = Dirichlet(clients=clients, beta=beta, min_samples=min_samples, seed=None).split(dataset, seed).train
    assert [train[client].tolist() for client in range(clients)] == nested_loops(
        labels.tolist(), classes, clients, beta, min_samples, seed
    )


def test_an_empty_class_still_draws_as_in_niid_bench(make_dataset):
    labels = [0, 2] * 50  # class 1 has no samples
    train = Dirichlet(clients=3, beta=0.5, min_samples=5, seed=7).split(make_dataset([*labels, 0], 100), 0).train
    assert [train[client].tolist() for client in range(3)] == nested_loops(labels, 3, 3, 0.5, 5, 7)


@settings(deadline=None, max_examples=40)
@given(
    labels=st.lists(st.integers(0, 3), min_size=30, max_size=80),
    clients=st.integers(1, 5),
    beta=st.sampled_from([0.3, 1.0, 100.0]),
    seed=st.integers(0, 2**40),
)
def test_every_training_sample_has_one_client_and_none_is_too_small(make_dataset, labels, clients, beta, seed):
    dataset = make_dataset([*labels, 3, 3], len(labels))
    partition = Dirichlet(clients=clients, beta=beta, min_samples=2, seed=None)
    federation = partition.split(dataset, seed)
    assert sorted(federation.train.samples.tolist()) == list(range(len(labels)))
    assert len(federation.train) == clients and federation.train.sizes.min() >= 2
    assert federation.test.samples.tolist() == [len(labels), len(labels) + 1]
    assert federation.train.samples.equal(partition.split(dataset, seed).train.samples)


def test_another_seed_is_another_partition(make_dataset):
    dataset = make_dataset(np.arange(501) % 10, 500)

    def samples(own, run):
        return Dirichlet(clients=5, beta=0.5, min_samples=10, seed=own).split(dataset, run).train.samples.tolist()

    assert samples(None, 0) == samples(0, 1)
    assert samples(None, 0) != samples(None, 1)


def test_a_tiny_beta_fills_clients_one_after_the_other(make_dataset):
    # Proportions are then one-hot, and the cap n/N = 50 closes a client after the class it got.
    train = (
        Dirichlet(clients=4, beta=1e-5, min_samples=10, seed=0)
        .split(make_dataset([*np.arange(200) % 4, 0], 200), 0)
        .train
    )
    assert train.sizes.tolist() == [50, 50, 50, 50]
    assert sorted(train[client].numpy()[0] % 4 for client in range(4)) == [0, 1, 2, 3]


def test_a_hopeless_setting_ends_in_an_error_that_says_what_to_change(make_dataset, monkeypatch):
    monkeypatch.setattr(Dirichlet, "attempts", 20)
    # Two classes with nearly one-hot proportions cannot feed five clients.
    with pytest.raises(InputError, match="larger beta than 0.001, fewer clients than 5 or a smaller min_samples"):
        Dirichlet(clients=5, beta=0.001, min_samples=10, seed=0).split(make_dataset([*np.arange(100) % 2, 0], 100), 0)
    with pytest.raises(InputError, match="beta=1e-300 is too small"):
        Dirichlet(clients=5, beta=1e-300, min_samples=1, seed=0).split(make_dataset([*np.arange(100) % 2, 0], 100), 0)
    with pytest.raises(InputError, match="clients=5 with min_samples=21 needs at least 105 training samples.* has 100"):
        Dirichlet(clients=5, beta=1.0, min_samples=21, seed=0).split(make_dataset([*np.arange(100) % 2, 0], 100), 0)


@pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"clients": 0}, {"min_samples": 0}, {"clients": "5"}, {"alpha": 1.0}])
def test_wrong_keys_are_refused_when_the_partition_is_made(wrong):
    with pytest.raises(ArgumentError):
        Dirichlet(**{"clients": 5, "beta": 0.5, "min_samples": 10, "seed": None} | wrong)


def test_a_concentration_whose_sum_over_clients_overflows_is_refused():
    """1e308 is no small beta."""
    with pytest.raises(ArgumentError, match=r"beta=1e\+308; allowed: a finite number, above 0 and at most 1e\+300$"):
        Dirichlet(clients=5, beta=1e308, min_samples=1, seed=0)
    with pytest.raises(ArgumentError, match=r"alpha=1e\+308; allowed: .* at most 1e\+300$"):
        DirichletHsu(clients=5, alpha=1e308, seed=0)
