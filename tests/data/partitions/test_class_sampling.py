"""The two schemes whose clients draw by their own class prior: Hsu et al., and FedDyn with FedDC."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from fedrun.config.config_class import ArgumentError
from fedrun.data.partitions import class_sampling, dirichlet_hsu
from fedrun.data.partitions.class_sampling import draw_counts, log_dirichlet
from fedrun.data.partitions.dirichlet_feddc import DirichletFedDC, poisson_times
from fedrun.data.partitions.dirichlet_hsu import DirichletHsu

from ...conftest import small_images

PRIORS = [[Fraction(7, 10), Fraction(2, 10), Fraction(1, 10)], [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]]


def exact_law(turns, sizes, left):
    """The probabilities of all outcomes ``counts[client][class]``, following every path of single draws.

    ``turns`` says who may be next: one of the clients that have not drawn as often as their size, each as likely.
    """
    if not sum(sizes):
        return {tuple(tuple(0 for _ in left) for _ in sizes): Fraction(1)}
    law = Counter()
    drawing = turns([client for client, size in enumerate(sizes) if size])
    for client in drawing:
        total = sum(p for p, n in zip(PRIORS[client], left, strict=True) if n)
        for label, (p, n) in enumerate(zip(PRIORS[client], left, strict=True)):
            if not n:
                continue
            later = [size - (other == client) for other, size in enumerate(sizes)]
            rest = [m - (other == label) for other, m in enumerate(left)]
            for counts, probability in exact_law(turns, later, rest).items():
                own = [list(row) for row in counts]
                own[client][label] += 1
                law[tuple(map(tuple, own))] += probability * p / total / len(drawing)
    return law


@pytest.mark.parametrize(
    ("turns", "times"),
    [
        # one client after the other
        (lambda unfilled: unfilled[:1], lambda sizes, rng: (np.arange(2.0), np.ones(2))),
        # uniform among the clients that are not full
        (lambda unfilled: unfilled, poisson_times),
    ],
)
def test_the_law_is_that_of_single_draws(monkeypatch, turns, times):
    monkeypatch.setattr(class_sampling, "BLOCK", 2)
    sizes, left = [2, 4], [1, 2, 3]
    law = exact_law(turns, sizes, left)
    assert sum(law.values()) == 1
    rng, draws = np.random.default_rng(0), 3000
    logarithms = np.log(np.array(PRIORS, dtype=float)) + np.array([[3.0], [-500.0]])  # unnormalised
    found = Counter()
    for _ in range(draws):
        counts = draw_counts(np.array(sizes), *times(np.array(sizes), rng), logarithms, np.array(left), rng)
        found[tuple(map(tuple, counts.T.tolist()))] += 1
    assert set(found) <= set(law)
    for outcome, probability in law.items():
        expected = float(probability)
        assert abs(found[outcome] / draws - expected) < 4.5 * np.sqrt(expected * (1 - expected) / draws)


def one_after_the_other(sizes, priors, left, rng):
    """Counts ``[N][C]`` of clients that draw in turn, simulated draw by draw."""
    counts, left, unfilled = np.zeros(priors.shape), left.copy(), list(sizes)
    while any(unfilled):
        client = rng.choice(np.flatnonzero(unfilled))
        weights = priors[client] * (left > 0)
        label = rng.choice(len(left), p=weights / weights.sum())
        counts[client, label] += 1
        unfilled[client] -= 1
        left[label] -= 1
    return counts


def test_the_means_are_those_of_a_simulation_in_which_several_classes_run_empty():
    rng, runs = np.random.default_rng(0), 150
    sizes, left = np.array([3, 8, 13, 16]), np.array([3, 20, 6, 11])
    priors = rng.dirichlet(np.ones(4), 4)
    naive = np.array([one_after_the_other(sizes, priors, left, rng) for _ in range(runs)])
    ours = np.array(
        [draw_counts(sizes, *poisson_times(sizes, rng), np.log(priors), left, rng).T for _ in range(10 * runs)]
    )
    assert (ours.sum(1) == left).all() and (ours.sum(2) == sizes).all()
    error = np.sqrt(naive.var(0) / runs + ours.var(0) / len(ours))
    assert (abs(naive.mean(0) - ours.mean(0)) < 4.5 * error + 1e-9).all()


def test_a_class_is_dealt_out_whole_also_where_draws_come_at_the_same_time():
    sizes, left = np.array([3, 3]), np.array([2, 4])
    logarithms = np.log([[0.9, 0.1], [0.9, 0.1]])
    for seed in range(50):
        counts = draw_counts(sizes, np.zeros(2), np.zeros(2), logarithms, left, np.random.default_rng(seed))
        assert counts.sum(0).tolist() == [3, 3] and counts.sum(1).tolist() == [2, 4]


def test_a_prior_that_underflows_everywhere_but_on_an_empty_class_still_decides():
    # After class 0 is used up, class 1 is e^1000 times as probable as class 2.
    logarithms = np.array([[0.0, -5000.0, -6000.0]])
    sizes, left = np.array([5]), np.array([3, 2, 9])
    counts = draw_counts(sizes, np.zeros(1), np.ones(1), logarithms, left, np.random.default_rng(0))
    assert counts.tolist() == [[3], [2], [0]]


def test_dirichlet_draws_have_the_dirichlets_moments():
    concentrations = np.array([0.3, 0.0, 1.2])
    weights = np.exp(log_dirichlet(concentrations, 100_000, np.random.default_rng(0)))
    shares = weights / weights.sum(1, keepdims=True)
    # mean a/A; variance a (A - a) / (A² (A + 1)) with A = 1.5
    assert np.allclose(shares.mean(0), [0.2, 0.0, 0.8], atol=0.005)
    assert np.allclose(shares.var(0), [0.064, 0.0, 0.064], atol=0.002)


def test_turns_are_uniform_among_clients_that_are_not_full():
    # sizes 1, 2: orders 0 1 1, 1 0 1, 1 1 0 have probabilities 1/2, 1/4, 1/4 (not 1/3 each)
    rng, draws, sizes = np.random.default_rng(0), 8000, np.array([1, 2])
    found = Counter()
    for _ in range(draws):
        begins, durations = poisson_times(sizes, rng)
        times = np.repeat(begins, sizes) + np.repeat(durations, sizes) * rng.random(3)
        found[tuple(np.repeat([0, 1], sizes)[np.argsort(times)].tolist())] += 1
    for order, expected in {(0, 1, 1): 0.5, (1, 0, 1): 0.25, (1, 1, 0): 0.25}.items():
        assert abs(found[order] / draws - expected) < 4.5 * np.sqrt(expected * (1 - expected) / draws)


def class_counts(train, labels, clients):
    return np.array([np.bincount(labels[train[client].numpy()], minlength=10) for client in range(clients)])


@pytest.mark.parametrize(
    "partition",
    [
        DirichletHsu(clients=30, alpha=1e6, seed=0),
        DirichletFedDC(clients=30, alpha=1e6, sigma=0.0, seed=0),
    ],
)
def test_a_large_concentration_gives_the_global_distribution(make_dataset, partition):
    labels = np.random.default_rng(0).permutation(np.arange(30_000) % 10)
    counts = class_counts(partition.split(make_dataset([*labels, 0], 30_000), 0).train, labels, 30)
    assert (counts.sum(1) == 1000).all()
    # By the law of large numbers each entry is about 100, with a standard deviation below sqrt(1000 0.1 0.9) = 9.5;
    # the last ones take what is left over.
    assert abs(counts[:20] - 100).max() < 45


@pytest.mark.parametrize(
    ("partition", "most"),
    [
        # Nearly one-hot priors: a client has one class, and another where the first was used up by those before it.
        (DirichletHsu(clients=20, alpha=1e-6, seed=0), 2),
        # Clients take turns, so all that prefer a popular class lose it at the same time, and move on together.
        (DirichletFedDC(clients=20, alpha=1e-6, sigma=0.0, seed=0), 5),
    ],
)
def test_a_small_concentration_gives_few_classes(make_dataset, partition, most):
    labels = np.random.default_rng(0).permutation(np.arange(2003) % 10)
    train = partition.split(make_dataset([*labels, 0], 2003), 0).train
    assert train.sizes.tolist() == [101] * 3 + [100] * 17
    held = (class_counts(train, labels, 20) > 0).sum(1)
    assert np.median(held) <= most


@pytest.mark.parametrize(
    "partition",
    [DirichletHsu(clients=10, alpha=1.0, seed=0), DirichletFedDC(clients=10, alpha=1.0, sigma=0.0, seed=0)],
)
def test_the_samples_of_a_class_are_divided_at_random(make_dataset, partition):
    """The mean number of a client's 100 of 1000 samples is 499.5, with a standard deviation below 29."""
    train = partition.split(make_dataset([0] * 1001, 1000), 0).train
    assert all(abs(train[client].double().mean() - 499.5) < 5 * 29 for client in range(10))


def test_hsu_follows_a_skewed_global_distribution(make_dataset):
    labels = np.array([0] * 9000 + [1] * 1000)
    train = DirichletHsu(clients=100, alpha=1e6, seed=0).split(make_dataset([*labels, 1], 10_000), 0).train
    ones = np.array([labels[train[client].numpy()].sum() for client in range(50)])
    assert abs(ones.mean() - 10) < 4 * 3 / np.sqrt(50)


def test_feddcs_lognormal_sizes_are_exact(make_dataset):
    partition = DirichletFedDC(clients=10, alpha=0.5, sigma=0.3, seed=0)
    train = partition.split(make_dataset([*np.arange(1000) % 10, 0], 1000), 0).train
    assert train.sizes.sum() == 1000 and len(set(train.sizes.tolist())) > 3


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1e-9}, {"sigma": -0.1}, {"clients": 0}])
def test_wrong_keys_are_refused_when_the_partition_is_made(wrong):
    with pytest.raises(ArgumentError):
        DirichletFedDC(**{"clients": 5, "alpha": 0.5, "sigma": 0.0, "seed": None} | wrong)


def test_hsus_concentrations_are_of_the_global_shares(monkeypatch):
    # p = (0.9, 0.1), α = 2
    given = []
    monkeypatch.setattr(
        dirichlet_hsu, "log_dirichlet", lambda c, *more: given.append(c.tolist()) or log_dirichlet(c, *more)
    )
    data = replace(small_images(100, 10), targets=torch.tensor([0] * 90 + [1] * 10 + [2] * 10))
    dirichlet_hsu.DirichletHsu(clients=5, alpha=2.0, seed=0).split(data, 0)
    assert given == [pytest.approx([1.8, 0.2, 0.0])]
