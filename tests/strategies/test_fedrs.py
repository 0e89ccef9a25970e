"""FedRS: worked numbers, networks against a naive server, its reduction to FedAvg."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.strategies.client import Outputs

from ..helpers.naive_strategies import NaiveFedRS
from ..helpers.own_tasks import Brier
from ..helpers.quadratic_clients import FEDAVG, info_of
from ..helpers.small_networks import NETWORKS, assert_as_naive, final_model, mlp


def fedrs(alpha: float = 0.5, soft: bool = False) -> Strategy:
    return Strategy(client=option("strategy/client", "fedrs", alpha=alpha, soft=soft), server=FEDAVG)


@pytest.mark.parametrize(
    ("soft", "counts", "factors"), [(False, (3.0, 0.0, 1.0), (1, 0.5, 1)), (True, (50.0, 0.0, 25.0), (1, 0.5, 0.75))]
)
def test_a_missing_class_is_scaled_down(soft, counts, factors):
    """z = (1, 2, 0), label 0, class 1 missing: cross-entropy 1.4076060 becomes 0.8619948."""
    client, logits, target = fedrs(soft=soft).client, torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([0])
    constants = client.constants({}, {}, replace(info_of((1,), 0, 1, 0.1), label_counts=torch.tensor(counts)))
    assert constants["scale"].tolist() == pytest.approx(factors)
    assert client.loss(Outputs(logits), target, constants).tolist() == pytest.approx([0.8619948], abs=1e-6)
    one = fedrs(alpha=1.0, soft=soft).client
    constants = one.constants({}, {}, replace(info_of((1,), 0, 1, 0.1), label_counts=torch.tensor(counts)))
    assert one.loss(Outputs(logits), target, constants).tolist() == pytest.approx([1.4076060], abs=1e-6)


def test_a_task_with_another_loss():
    """Brier's score of the softmax of (1, 1, 0), label 0."""
    client = fedrs().client
    constants = {"scale": torch.tensor([1.0, 0.5, 1.0])}
    outputs = Outputs(torch.tensor([[1.0, 2.0, 0.0]]), task=Brier())
    assert client.loss(outputs, torch.tensor([0]), constants).tolist() == pytest.approx([0.5362062], abs=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("soft", [False, True])
def test_networks(make_experiment, network, soft):
    def naive(*arguments):
        server = NaiveFedRS(*arguments, soft=soft)
        assert any(0 in server.counts(client) for client in range(6))
        return server

    sizes, local = (2, 12, 3, 5, 20, 1), {"epochs": 2, "momentum": 0.5}  # small clients lack classes
    assert_as_naive(make_experiment, network, naive, sizes=sizes, local=local, strategy=fedrs(soft=soft))


@pytest.mark.parametrize("soft", [False, True])
def test_alpha_one_is_fedavg(make_experiment, soft):
    experiment = make_experiment(network=mlp, local={"epochs": 2})
    restricted = final_model(replace(experiment, strategy=fedrs(1.0, soft)), 3)
    torch.testing.assert_close(restricted, final_model(experiment, 3), rtol=1e-6, atol=1e-7)
