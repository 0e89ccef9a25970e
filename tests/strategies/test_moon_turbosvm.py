"""MOON as in TurboSVM-FL's code: by hand, networks against a naive server, its reduction to unshuffled FedAvg."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import Outputs

from ..helpers.naive_averaging import NaiveClients, NaiveFedAvg
from ..helpers.naive_local_training import NaiveMoonTurboSVM
from ..helpers.quadratic_clients import FEDAVG
from ..helpers.small_networks import COHORT, NETWORKS, assert_as_naive, final_model, mlp


def moon(mu: float = 1.0, tau: float = 0.5) -> Strategy:
    return Strategy(client=option("strategy/client", "moon_turbosvm", mu=mu, tau=tau), server=FEDAVG)


def test_the_term_by_hand():
    """Cosines: 1/√2 with the broadcast model's, 0 and -1 with those of two earlier epochs; τ = 0.5, μ = 2."""
    z = torch.tensor([[1.0, 0.0]])
    logits, earlier = torch.zeros(1, 2), torch.tensor([[[0.0, 3.0]], [[-2.0, 0.0]]])
    outputs = Outputs(logits, z, {"model": Outputs(logits, torch.tensor([[1.0, 1.0]]))}, earlier)
    near, target = math.exp(2**0.5), torch.tensor([1])
    expected = math.log(2) - 2 * math.log(near / (near + 1 + math.exp(-2)))  # two equal logits: ln 2
    assert moon(mu=2.0).client.loss(outputs, target, {}).tolist() == pytest.approx([expected], abs=1e-6)
    one = replace(outputs, earlier_embeddings=earlier[:1])
    as_moon = math.log(2) + 0.2176217
    assert moon().client.loss(one, target, {}).tolist() == pytest.approx([as_moon], abs=1e-6)
    first_epoch = replace(outputs, earlier_embeddings=None)
    assert moon().client.loss(first_epoch, target, {}).tolist() == pytest.approx([math.log(2)], abs=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
def test_networks(make_experiment, network):
    """Clients of 3, 5 and 20 samples among others, B = 4: short batches, whose negatives are other samples'."""
    build, local = NETWORKS[network], {"epochs": 3, "momentum": 0.5}
    experiment = make_experiment(network=build, local=local, strategy=moon(2.0, 0.3), clients_per_round=COHORT)
    naive = partial(NaiveMoonTurboSVM, mu=2.0, tau=0.3)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=moon(2.0, 0.3), executors=["in_process"])
    without = final_model(make_experiment(network=build, local=local, strategy=moon(0.0), clients_per_round=COHORT), 3)
    assert not torch.allclose(without, final_model(experiment, 3), atol=1e-3)  # the term did something


@pytest.mark.parametrize("network", NETWORKS)
def test_one_epoch_is_fedavg_in_the_samples_own_order(make_experiment, network):
    class InOrder(NaiveClients):
        def batches(self, count, order):
            return list(torch.arange(count).split(self.batch_size))

    settings = {"clients": InOrder(), "strategy": moon(5.0), "executors": ["in_process"]}
    assert_as_naive(make_experiment, network, NaiveFedAvg, **settings)


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_it_has_no_client_state_and_looks_once_more_at_every_sample_but_in_the_first_epoch(make_experiment, epochs):
    local = {"epochs": epochs}
    simulation = Simulation(make_experiment(network=mlp, strategy=moon(), clients_per_round=6, local=local))
    state, _ = simulation.advance(simulation.initial())
    assert not state.client_states.held
    assert (state.totals.client_samples, state.totals.forward_samples) == (60 * epochs, 60 * (epochs - 1))
