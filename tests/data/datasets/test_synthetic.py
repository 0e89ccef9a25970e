"""Synthetic(alpha, beta), against the laws it is drawn from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.data.datasets.base import Dataset
from fedrun.data.datasets.synthetic import Synthetic
from fedrun.data.partitions.natural import Natural
from fedrun.experiment.experiment import build_experiment
from fedrun.system.errors import InputError

LI = Synthetic(
    clients=30, features=60, classes=10, alpha=1.0, beta=1.0, own_classifiers=True, own_data=True,
    size_log_mean=4.0, size_log_std=2.0, size_base=50, test="held_out", seed=0,
)  # fmt: skip
FEDDC = replace(
    LI, clients=20, features=30, classes=5, own_classifiers=False, own_data=False, size_log_mean=5.298322,
    size_log_std=0.0, size_base=0, test="training",
)  # fmt: skip
MANY = replace(FEDDC, clients=2, size_log_mean=9.9, test="held_out")  # 19 930 samples each


def client(dataset: Dataset, number: int) -> torch.Tensor:
    assert dataset.users is not None
    return dataset.inputs[dataset.users.offsets[number] : dataset.users.offsets[number + 1]]


def test_a_tenth_of_every_clients_samples_is_held_out() -> None:
    dataset = LI.load()
    users = dataset.users
    assert users is not None
    assert users.names == tuple(map(str, range(30))) * 2
    assert users.training == 30
    train, test = users.offsets.diff().view(2, 30)
    assert (train == ((train + test) * 9) // 10).all()
    assert (train + test >= 50).all() and (train + test).max() > 200  # log-normal with sigma 2 above the base
    assert dataset.train_size == train.sum()
    assert dataset.inputs.shape == (users.offsets[-1], 60)
    assert (dataset.inputs.dtype, dataset.targets.dtype) == (torch.float32, torch.int64)
    assert dataset.targets.min() >= 0 and dataset.targets.max() <= 9
    assert torch.equal(dataset.encoding(dataset.inputs), dataset.inputs)


def test_users_are_clients() -> None:
    federation = Natural(sample_fraction=1.0, train_fraction=0.9, min_samples=1, seed=0).split(LI.load(), seed=0)
    assert (len(federation.train), len(federation.test)) == (30, 30)
    assert federation.train.names == federation.test.names


def test_the_test_set_of_feddyn_is_its_training_set() -> None:
    dataset = FEDDC.load()
    assert dataset.users is not None
    assert dataset.users.offsets.tolist() == list(range(0, 8001, 200))
    assert torch.equal(dataset.inputs[:4000], dataset.inputs[4000:])
    assert torch.equal(dataset.targets[:4000], dataset.targets[4000:])


def test_samples_have_the_covariance_of_the_paper() -> None:
    samples = client(MANY.load(), 0).double()
    covariance = samples.T.cov()
    expected = torch.diag(torch.arange(1, 31, dtype=torch.float64) ** -1.2)
    assert torch.allclose(covariance, expected, atol=0.04)  # 4 standard errors of the largest, sqrt(2 / 17 937)
    assert samples.mean(0).abs().max() < 0.03


def test_labels_come_from_one_common_linear_classifier() -> None:
    """A linear classifier fitted to one client is right about the other, where the classifier is common."""
    agreement = {}
    for own in (False, True):
        dataset = replace(MANY, own_classifiers=own).load()
        targets = dataset.targets.split([17937, 17937, 1993, 1993])
        ones = torch.ones(17937, 1)
        scores = torch.nn.functional.one_hot(targets[0], 5).float() - 0.2
        weights = torch.linalg.lstsq(torch.cat([client(dataset, 0), ones], 1), scores).solution
        predicted = (torch.cat([client(dataset, 1), ones], 1) @ weights).argmax(1)
        agreement[own] = (predicted == targets[1]).float().mean().item()
    assert agreement[False] > 0.75
    assert agreement[True] < 0.5


def test_beta_is_the_standard_deviation_of_the_clients_centres() -> None:
    """The mean over j of v_kj is N(0, beta^2 + 1/60) over clients, the mean over k of v_kj - B_k nearly 0."""

    def spread(beta: float) -> float:
        dataset = replace(LI, clients=400, beta=beta, size_log_mean=0.0, size_log_std=0.0).load()
        return torch.stack([client(dataset, k).mean() for k in range(400)]).std().item()

    noise = (1 / 60) ** 0.5
    assert spread(0.0) == pytest.approx(noise, rel=0.15)
    assert spread(2.0) == pytest.approx(2.0, rel=0.15)


def test_classifiers_differ_without_alpha_too() -> None:
    """With alpha = 0 classifiers still differ: W_k is N(0, 1) for each client."""
    one, other = replace(LI, alpha=0.0).load(), replace(LI, alpha=0.0, own_classifiers=False).load()
    assert torch.equal(one.inputs, other.inputs)
    assert not torch.equal(one.targets, other.targets)


def test_draws_have_addresses() -> None:
    dataset, longer = LI.load(), replace(LI, clients=31).load()
    assert torch.equal(client(dataset, 7), client(longer, 7))
    assert dataset.fingerprint == LI.load().fingerprint
    assert replace(LI, seed=1).load().fingerprint != dataset.fingerprint
    assert torch.equal(replace(LI, alpha=3.0).load().inputs, dataset.inputs)


@pytest.mark.parametrize(("name", "expected"), [("synthetic", LI), ("synthetic_feddyn", FEDDC)])
def test_options(name: str, expected: Synthetic) -> None:
    built = build_experiment(compose([f"dataset={name}"]).config).dataset
    assert built == (expected if name == "synthetic" else replace(expected, alpha=0.0, beta=0.0))


def test_clients_without_samples_are_refused() -> None:
    with pytest.raises(InputError, match=r"size_log_mean=0 and dataset.size_base=0 leave client \d+ with 1 samples"):
        replace(LI, size_log_mean=0.0, size_log_std=0.0, size_base=0).load()
