"""FedSGD is FedAvg with one step on all of a client's data, and refuses to be anything else."""

from __future__ import annotations

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.quadratic_clients import FEDAVG
from ..helpers.small_networks import data_of, mlp, network_of

CLIENT = option("strategy/client", "fedsgd")


def test_the_option_sets_the_local_training():
    local = build_experiment(compose(["strategy=fedsgd"]).config).local
    assert (local.batch_size, local.epochs, local.steps) == (None, 1, None)


@pytest.mark.parametrize("override", ["local.epochs=2", "local.batch_size=10", "local={epochs: null, steps: 3}"])
def test_other_local_training_is_refused(override):
    with pytest.raises(InputError, match="client=fedsgd makes one step.*allowed: batch_size=null with epochs=1"):
        build_experiment(compose(["strategy=fedsgd", override]).config)


def test_a_round_is_a_step_along_the_gradient_of_all_samples(make_experiment):
    strategy = Strategy(client=CLIENT, server=FEDAVG)
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, local={"batch_size": None}, clients_per_round=6)
    )
    network = network_of(simulation, mlp)
    inputs, labels = (torch.cat(each) for each in zip(*data_of(simulation), strict=True))
    torch.nn.functional.cross_entropy(network(inputs), labels).backward()
    state, _ = simulation.advance(simulation.initial())
    for (name, parameter), own in zip(
        network.named_parameters(), simulation.network.layout.views(state.server.model).values(), strict=True
    ):
        torch.testing.assert_close(own, parameter.detach() - 0.1 * parameter.grad, rtol=1e-5, atol=1e-6, msg=name)
