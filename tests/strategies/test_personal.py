"""Ditto and FedPer against naive rounds on ordinary modules."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import Measurement
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.fedper import FedPer
from fedrun.strategies.vectors import Vectors
from fedrun.system.errors import RunError
from fedrun.system.randomness import generator

from ..helpers.appeal import constant
from ..helpers.naive_averaging import NaiveClients, NaiveFedAvg, weighted_mean
from ..helpers.quadratic_clients import info_of
from ..helpers.small_networks import COHORT, assert_as_naive, data_of, mlp, network_of


def strategy(*overrides: str):
    return build_experiment(compose(overrides).config).strategy


def accuracy(simulation, networks) -> float:
    """The mean over clients of their own network's accuracy on their own test samples."""
    each = []
    for client, network in enumerate(networks):
        own = simulation.federation.client_test[client]
        predicted = network(simulation.dataset.inputs[own].float() / 255).argmax(1)
        each.append((predicted == simulation.dataset.targets[own]).double().mean().item())
    return sum(each) / len(each)


@pytest.fixture
def setting(default_experiment):
    population = replace(default_experiment.population, test_share=0.4)
    return {"network": mlp, "clients_per_round": COHORT, "population": population}


def test_dittos_global_model_is_fedavgs(make_experiment, setting):
    ditto, population = strategy("strategy=ditto"), setting["population"]
    assert_as_naive(make_experiment, mlp, NaiveFedAvg, strategy=ditto, population=population)


def test_dittos_own_models(make_experiment, setting):
    ditto = strategy("strategy=ditto", "strategy.client.strength=0.5")
    simulation = Simulation(make_experiment(strategy=ditto, **setting))
    common, data = network_of(simulation, mlp), data_of(simulation)
    state, own = simulation.initial(), {}
    for index in range(4):
        state, _ = simulation.advance(state)
        for client in select(0, index, 6, COHORT).tolist():
            network = own.setdefault(client, copy.deepcopy(common))
            x, y = data[client]
            optimizer = torch.optim.SGD(network.parameters(), 0.1)
            for batch in torch.randperm(len(y), generator=generator(0, "batches", index, client)).split(4):
                loss = nn.functional.cross_entropy(network(x[batch]), y[batch])
                for p, w in zip(network.parameters(), common.parameters(), strict=True):
                    loss = loss + 0.5 / 2 * (p - w.detach()).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        common.load_state_dict(simulation.network.layout.views(state.server.model.clone()))
        for client, network in own.items():
            for name, view in simulation.network.layout.views(state.client_states.held[client]["own"]).items():
                torch.testing.assert_close(view, network.state_dict()[name], rtol=1e-5, atol=1e-6)
    tested = accuracy(simulation, [own.get(client, common) for client in range(6)])
    assert simulation.test(state)["clients/accuracy_mean"] == pytest.approx(tested)
    assert state.totals.client_samples == 2 * sum(
        len(data[client][1]) for index in range(4) for client in select(0, index, 6, COHORT).tolist()
    )


def test_own_models_that_diverge_are_left_out_with_their_clients(make_experiment, setting):
    """Each step multiplies an own model's distance from the global one by 1 - 0.1 * 1000 = -99."""
    ditto = strategy("strategy=ditto", "strategy.client.strength=1000")
    simulation = Simulation(make_experiment(strategy=ditto, local={"epochs": 30}, **setting))
    with pytest.raises(RunError, match=r"round 1: no client's upload was finite"):
        simulation.advance(simulation.initial())


def test_own_models_are_tested_in_float32(make_experiment, setting, default_experiment):
    found = []
    for precision in ("float32", "bfloat16"):
        evaluation = replace(default_experiment.evaluation, precision=precision)
        simulation = Simulation(make_experiment(strategy=strategy("strategy=solo"), evaluation=evaluation, **setting))
        found.append(simulation.test(simulation.advance(simulation.initial())[0]))
    assert found[0] == found[1]


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_fedper(make_experiment, setting, executor):
    simulation = Simulation(
        make_experiment(strategy=strategy("strategy=fedper"), hardware={"executor": executor}, **setting)
    )
    common, data = network_of(simulation, mlp), data_of(simulation)
    first = copy.deepcopy(common.head)
    state, heads = simulation.initial(), {}
    for index in range(4):
        state, _ = simulation.advance(state)
        cohort = select(0, index, 6, COHORT).tolist()
        ends = []
        for client in cohort:
            start = copy.deepcopy(common)
            start.head = copy.deepcopy(heads.get(client, first))
            order = generator(0, "batches", index, client)
            ends.append(NaiveClients().train(start, *data[client], order, index)[0])
            heads[client] = ends[-1].head
        mean = weighted_mean([end.encoder for end in ends], [float(len(data[client][1])) for client in cohort])
        common.encoder.load_state_dict(mean)
        for name, view in simulation.network.layout.views(state.server.model).items():
            torch.testing.assert_close(view, common.state_dict()[name], rtol=1e-5, atol=1e-6)
    own = []
    for client in range(6):
        own.append(copy.deepcopy(common))
        own[-1].head = heads.get(client, first)
    assert simulation.test(state)["clients/accuracy_mean"] == pytest.approx(accuracy(simulation, own))
    encoder = 16 * 6 + 6
    assert (state.totals.params_up, state.totals.params_down) == (4 * COHORT * encoder, 4 * COHORT * encoder)


def test_dittos_own_model_is_trained_at_the_rounds_rate():
    # v = 3, w = 1, gradient v: 3 - 0.1 (3 + 0.5 * 2) = 2.6; with η_0 = 0.4 it would be 1.4
    ditto = option("strategy/client", "ditto", strength=0.5)
    info = replace(info_of((1,), 0, 1, 0.4, lr_decay=0.25), round=1, is_new=torch.tensor([False]))
    constants = ditto.constants({"model": torch.tensor([1.0])}, {"own": torch.tensor([3.0])}, info)
    ditto.direction(lambda at, which: at.clone(), torch.tensor([1.0]), constants)
    assert constants["own"].item() == pytest.approx(2.6)


def test_dittos_own_buffers_are_those_of_its_training():
    ditto = option("strategy/client", "ditto", strength=0.5)
    received, client_state = {"model": torch.tensor([1.0, 7.0])}, {"own": torch.zeros(2)}
    info = info_of((1,), 0, 1, 0.1)
    constants = ditto.constants(received, client_state, info)
    sent, kept = ditto.finish(torch.tensor([2.0, 9.0]), received, client_state, constants, info)
    assert (sent["model"].tolist(), kept["own"].tolist()) == ([2.0, 9.0], [1.0, 9.0])


@config_class
class ByThreshold(FedPer):
    """FedPer that requests thresholds, which are unknown when its own models are evaluated."""

    wants: ClassVar[frozenset[Measurement]] = frozenset({"threshold"})

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        assert client.threshold is None
        return super().own_model(received, client_state, client)


def test_a_personal_strategy_that_requests_thresholds(make_experiment, setting):
    chosen = Strategy(client=ByThreshold(), server=option("strategy/server", "fedavg"))
    simulation = Simulation(make_experiment(strategy=chosen, appeal=constant(), **setting))
    state, _ = simulation.advance(simulation.initial())
    assert simulation.test(state)["test/accuracy"] > 0
