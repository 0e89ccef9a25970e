"""The two schemes whose clients draw by their own class prior: Hsu et al., and FedDyn with FedDC."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from fedrun.partitions import class_priors
from fedrun.partitions.class_priors import draw_counts, log_dirichlet
from fedrun.partitions.dirichlet_feddc import DirichletFedDC, random_turns
from fedrun.partitions.dirichlet_hsu import DirichletHsu


def exact_law(turns, priors, left):
    """The probabilities of all outcomes ``counts[client][class]``, following every path of single draws."""
    if not turns:
        return {tuple(tuple(0 for _ in left) for _ in priors): Fraction(1)}
    client, *later = turns
    law = Counter()
    total = sum(p for p, n in zip(priors[client], left, strict=True) if n)
    for label, (p, n) in enumerate(zip(priors[client], left, strict=True)):
        if not n or not p:
            continue
        rest = [m - (other == label) for other, m in enumerate(left)]
        for counts, probability in exact_law(later, priors, rest).items():
            own = [list(row) for row in counts]
            own[client][label] += 1
            law[tuple(map(tuple, own))] += probability * p / total
    return law


@pytest.mark.parametrize("block", [1, 2, 100])
def test_the_law_is_that_of_single_draws(monkeypatch, block):
    monkeypatch.setattr(class_priors, "BLOCK", block)
    turns, left = [0, 1, 0, 1, 0], [2, 1, 2]
    priors = [[Fraction(7, 10), Fraction(2, 10), Fraction(1, 10)], [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]]
    law = exact_law(turns, priors, left)
    assert sum(law.values()) == 1
    rng, draws = np.random.default_rng(0), 6000
    logarithms = np.log(np.array(priors, dtype=float)) + np.array([[3.0], [-500.0]])  # unnormalised
    found = Counter(
        tuple(map(tuple, draw_counts(np.array(turns), logarithms, np.array(left), rng).T.tolist()))
        for _ in range(draws)
    )
    assert set(found) <= set(law)
    for outcome, probability in law.items():
        expected = float(probability)
        assert abs(found[outcome] / draws - expected) < 4.5 * np.sqrt(expected * (1 - expected) / draws)


def test_a_prior_that_underflows_everywhere_but_on_an_empty_class_still_decides():
    # After class 0 is used up, class 1 is e^1000 times as probable as class 2.
    logarithms = np.array([[0.0, -5000.0, -6000.0]])
    counts = draw_counts(np.zeros(5, dtype=int), logarithms, np.array([3, 2, 9]), np.random.default_rng(0))
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
    rng, draws = np.random.default_rng(0), 8000
    found = Counter(tuple(random_turns(np.array([1, 2]), rng).tolist()) for _ in range(draws))
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
def test_wrong_keys_are_refused_when_the_recipe_is_made(wrong):
    with pytest.raises(ValidationError):
        DirichletFedDC(**{"clients": 5, "alpha": 0.5, "sigma": 0.0, "seed": None} | wrong)
