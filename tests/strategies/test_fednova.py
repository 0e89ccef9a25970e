"""FedNova: worked numbers, networks against a naive server, and its reduction to FedAvg."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.naive_strategies import NaiveFedNova
from ..helpers.quadratic_clients import info_of, round_of, start, update_of
from ..helpers.small_networks import COHORT, NETWORKS, assert_as_naive, batch_norm, final_model, mlp

CLIENT, SERVER = option("strategy/client", "fednova"), option("strategy/server", "fednova")
NOVA = Strategy(client=CLIENT, server=SERVER)


def test_clients_of_one_and_three_steps():
    """f(.;1,4) for one step and f(.;1,-1) for three, x = 0, η = 0.5: ends 2 and -0.875; p = 1/2 each."""
    uploads = []
    received = SERVER.broadcast(start(SERVER, 0.0))
    for end, steps in ((2.0, 1), (-0.875, 3)):
        info = info_of((1, 1), 0, steps, 0.5)
        constants = CLIENT.constants(received, {}, info)
        sent, kept = CLIENT.finish(torch.tensor([end]), received, {}, constants, info)
        assert kept == {}
        uploads.append(sent)
    assert [sent["direction"].item() for sent in uploads] == pytest.approx([-2, 0.2916667], abs=1e-6)
    assert [sent["normalizer"].tolist() for sent in uploads] == [[1], [3]]
    mean = {name: (uploads[0][name] + uploads[1][name]) / 2 for name in ("direction", "normalizer")}
    state, metrics = SERVER.aggregate(start(SERVER, 0.0), update_of(mean, (1, 1)), round_of(0, 2))
    assert state.model.item() == pytest.approx(1.7083333, abs=1e-6)
    assert metrics == {"effective_steps": 2.0}


@pytest.mark.parametrize(("steps", "expected"), [(1, 1.0), (2, 2.9), (3, 5.61)])
def test_effective_steps_with_momentum(steps, expected):
    info = info_of((1,), 0, steps, 0.1, momentum=0.9)
    assert CLIENT.effective_steps(info).item() == pytest.approx(expected, abs=1e-6)


def test_effective_steps_with_a_proximal_term():
    """η μ = 0.1: weights 0.81 + 0.9 + 1 after three steps; and for many clients at once."""
    info = info_of((1,), 0, 3, 0.2)
    client = option("strategy/client", "fednova", mu=0.5)
    assert client.effective_steps(info).item() == pytest.approx(2.71, abs=1e-6)
    many = replace(info, steps=torch.tensor([[1.0], [2.0], [3.0]]))
    assert client.effective_steps(many).squeeze(1).tolist() == pytest.approx([1, 1.9, 2.71], abs=1e-6)
    decayed = info_of((1,), 0, 3, 1e-17)  # three weights of 1 up to 1e-17, where 1 - (1 - 5e-18)^3 is rounded to 0
    assert client.effective_steps(decayed).item() == 3


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    ("local", "mu"),
    [({"epochs": 2}, 0.0), ({"epochs": 2, "momentum": 0.9, "weight_decay": 0.1}, 0.0), ({"lr_decay": 0.5}, 0.7)],
)
def test_networks(make_experiment, network, local, mu):
    strategy = replace(NOVA, client=option("strategy/client", "fednova", mu=mu))
    assert_as_naive(make_experiment, network, partial(NaiveFedNova, mu=mu), local=local, strategy=strategy)


@pytest.mark.parametrize("network", [mlp, batch_norm])
def test_equal_steps_are_fedavg(make_experiment, network):
    local = {"epochs": None, "steps": 5, "momentum": 0.5}
    experiment = make_experiment(network=network, local=local)
    nova = final_model(replace(experiment, strategy=NOVA), 3)
    torch.testing.assert_close(nova, final_model(experiment, 3), rtol=1e-5, atol=1e-6)
    unequal = replace(experiment, local=replace(experiment.local, epochs=1, steps=None))
    assert not torch.allclose(final_model(replace(unequal, strategy=NOVA), 3), final_model(unequal, 3), atol=1e-3)


def test_a_client_sends_one_number_more_than_a_model(make_experiment):
    experiment = make_experiment(network=mlp, strategy=NOVA, clients_per_round=COHORT)
    simulation = Simulation(experiment)
    state, _ = simulation.advance(simulation.initial())
    size = simulation.network.layout.size
    assert (state.totals.params_down, state.totals.params_up) == (COHORT * size, COHORT * (size + 1))


def test_momentum_with_a_proximal_term_is_refused():
    with pytest.raises(InputError, match=r"strategy\.client\.mu=0\.1 with local\.momentum=0\.9"):
        build_experiment(compose(["strategy=fednova", "strategy.client.mu=0.1", "local.momentum=0.9"]).config)
    with pytest.raises(InputError, match=r"strategy\.client\.mu=10\.0: allowed: below 1 / local\.lr = 10"):
        build_experiment(compose(["strategy=fednova", "strategy.client.mu=10.0"]).config)


def test_other_servers_are_refused():
    with pytest.raises(
        InputError, match="server=fedavg needs 'model' from the clients, which strategy/client=fednova does not send"
    ):
        build_experiment(compose(["strategy=fednova", "strategy/server=fedavg"]).config)
