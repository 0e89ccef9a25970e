"""SCAFFOLD with option I: the new control variate is the gradient at the broadcast model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation

from ..helpers.naive_averaging import NaiveClients
from ..helpers.naive_local_training import NaiveScaffoldI
from .test_averaging import COHORT, NETWORKS, SCAFFOLD, assert_equal_after, data_of, info_of, mlp, network_of

OPTION_I = replace(SCAFFOLD, client=option("strategy/client", "scaffold", option="I"))


def test_the_new_control_variate():
    """∇F = 3 at x; c_k was 0.5, c is 2: c_k becomes 3, and 2.5 is sent, whatever the move was."""
    info = replace(info_of((1,), 0, 2, 0.5), initial_gradient=torch.tensor([3.0]))
    received = {"model": torch.tensor([1.0]), "control": torch.tensor([2.0])}
    sent, kept = OPTION_I.client.finish(torch.tensor([9.0]), received, {"control": torch.tensor([0.5])}, {}, info)
    assert (sent["model"].item(), sent["control"].item(), kept["control"].item()) == (9.0, 2.5, 3.0)


@pytest.mark.parametrize(
    ("network", "executor"), [("mlp", "in_process"), ("mlp", "vectorized"), ("batch_norm", "in_process")]
)
@pytest.mark.parametrize("local", [{"epochs": 2, "lr_decay": 0.5}, {"epochs": None, "steps": 3, "weight_decay": 0.1}])
def test_networks(make_experiment, network, executor, local):
    build = NETWORKS[network]
    strategy = Strategy(client=OPTION_I.client, server=option("strategy/server", "scaffold", lr=0.7))
    experiment = make_experiment(
        network=build, local=local, strategy=strategy, clients_per_round=COHORT, hardware={"executor": executor}
    )
    simulation = Simulation(experiment)
    naive = NaiveScaffoldI(network_of(simulation, build), data_of(simulation), NaiveClients(**local), 0, lr=0.7)
    assert_equal_after(simulation, naive, rounds=4)


def test_it_costs_one_more_pass(make_experiment):
    simulation = Simulation(make_experiment(network=mlp, strategy=OPTION_I, clients_per_round=6, local={"epochs": 2}))
    totals = simulation.advance(simulation.initial())[0].totals
    assert (totals.client_samples, totals.forward_samples) == (2 * 60 + 60, 0)
