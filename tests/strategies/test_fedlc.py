"""FedLC: worked numbers, networks against a naive server, its reduction to FedAvg."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.strategies.client import Outputs

from ..helpers.naive_strategies import NaiveFedLC
from ..helpers.own_tasks import Brier
from ..helpers.quadratic_clients import FEDAVG, info_of
from ..helpers.small_networks import NETWORKS, assert_as_naive, final_model, mlp


def fedlc(tau: float = 1.0, denominator: str = "all") -> Strategy:
    return Strategy(client=option("strategy/client", "fedlc", tau=tau, denominator=denominator), server=FEDAVG)


def loss_and_gradient(client, logits, target, counts) -> tuple[float, list[float]]:
    constants = client.constants({}, {}, replace(info_of((1,), 0, 1, 0.1), label_counts=torch.tensor(counts)))
    z = torch.tensor([logits], requires_grad=True)
    loss = client.loss(Outputs(z), torch.tensor([target]), constants)
    loss.sum().backward()
    return loss.item(), z.grad[0].tolist()


@pytest.mark.parametrize(("denominator", "expected"), [("all", 0.6260068), ("others", -0.1391152)])
def test_margins(denominator, expected):
    """Counts (16, 1, 81): margins (1/2, 1, 1/3)."""
    client = fedlc(denominator=denominator).client
    counts = (16.0, 1.0, 81.0)
    constants = client.constants({}, {}, replace(info_of((1,), 0, 1, 0.1), label_counts=torch.tensor(counts)))
    assert constants["margin"].tolist() == pytest.approx([0.5, 1, 1 / 3])
    assert loss_and_gradient(client, (1.0, 2.0, 0.0), 1, counts)[0] == pytest.approx(expected, abs=1e-6)


def test_a_task_with_another_loss():
    """Brier's score of the softmax of (1/2, 1, −1/3), label 1."""
    client, constants = fedlc().client, {"margin": torch.tensor([0.5, 1, 1 / 3])}
    outputs = Outputs(torch.tensor([[1.0, 2.0, 0.0]]), task=Brier())
    assert client.loss(outputs, torch.tensor([1]), constants).tolist() == pytest.approx([0.3415374], abs=1e-6)


@pytest.mark.parametrize("denominator", ["all", "others"])
def test_a_missing_class_drops_out(denominator):
    """Whatever its logit, it changes neither loss nor gradient, and gets no gradient."""
    client = fedlc(denominator=denominator).client
    low = loss_and_gradient(client, (1.0, -7.0, 0.5), 0, (4.0, 0.0, 9.0))
    high = loss_and_gradient(client, (1.0, 90.0, 0.5), 0, (4.0, 0.0, 9.0))
    assert low == high
    assert low[1][1] == 0.0
    assert low[1][0] < 0 < low[1][2]


@pytest.mark.parametrize("denominator", ["all", "others"])
def test_a_client_with_a_single_class_learns_nothing(denominator):
    client = fedlc(denominator=denominator).client
    assert loss_and_gradient(client, (1.0, 2.0, 3.0), 0, (4.0, 0.0, 0.0)) == (0.0, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("denominator", ["all", "others"])
def test_networks(make_experiment, network, denominator):
    assert_as_naive(
        make_experiment,
        network,
        partial(NaiveFedLC, others=denominator == "others"),
        sizes=(2, 12, 3, 5, 20, 1),  # small clients lack classes; the last has a single one
        local={"epochs": 2, "lr": 0.05},
        strategy=fedlc(denominator=denominator),
    )


def test_without_margins_it_is_fedavg(make_experiment):
    experiment = make_experiment(network=mlp, local={"epochs": 2})
    calibrated = final_model(replace(experiment, strategy=fedlc(tau=0.0)), 3)
    torch.testing.assert_close(calibrated, final_model(experiment, 3), rtol=1e-6, atol=1e-7)
