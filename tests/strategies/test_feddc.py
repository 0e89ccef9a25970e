"""FedDC: worked numbers, networks against a naive server, its first round without a pull."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.execution.context import CohortJob
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import ClientStates

from ..conftest import first_executor
from ..helpers.naive_strategies import NaiveFedDC
from ..helpers.quadratic_clients import Quadratics, start
from ..helpers.small_networks import COHORT, NETWORKS, assert_as_naive, mlp
from ..helpers.strategies import feddc

SERVER = option("strategy/server", "feddc")


def test_two_rounds():
    federation = Quadratics(feddc(0.3).client, SERVER, ((1, 0), (1, 4)), (1, 3), lr=0.5, steps=2)

    def in_client_states(name: str) -> list[float]:
        return [federation.states[k][name].item() for k in (0, 1)]

    state = federation.round(start(SERVER, 1.0))
    assert in_client_states("drift") == pytest.approx([-0.6, 2.1], abs=1e-6)
    assert in_client_states("gradient") == pytest.approx([0.6, -2.1], abs=1e-6)
    assert state.slots["gradient"].item() == pytest.approx(-1.425, abs=1e-6)
    assert state.model.item() == pytest.approx(2.5, abs=1e-6)
    state = federation.round(state, 1)
    assert in_client_states("drift") == pytest.approx([0.186, 2.051], abs=1e-6)
    assert in_client_states("gradient") == pytest.approx([2.664, -1.101], abs=1e-6)
    assert state.slots["gradient"].item() == pytest.approx(-0.15975, abs=1e-6)
    assert state.model.item() == pytest.approx(3.987, abs=1e-6)


def test_a_round_with_momentum():
    """w = (0.5, 1.5), so alpha_k = 0.6, 0.2. Two steps with velocity v <- v / 2 + d; the gradients count 1.5 and 1.

    Client 0: d = 1, 0.2, so y = 0.15 and g = (1.5 + 0.2) / 2.5. Client 1: d = -3, -1.2, so y = 3.85 and
    g = -(4.5 + 1.2) / 2.5. G = (0.5 g_0 + 1.5 g_1) / 2; the model is (0.15 + 3.85) / 2 + (-0.85 + 2.85) / 2.
    """
    federation = Quadratics(feddc(0.3).client, SERVER, ((1, 0), (1, 4)), (1, 3), lr=0.5, steps=2, momentum=0.5)
    state = federation.round(start(SERVER, 1.0))
    assert [federation.states[k]["gradient"].item() for k in (0, 1)] == pytest.approx([0.68, -2.28], abs=1e-6)
    assert state.slots["gradient"].item() == pytest.approx(-1.54, abs=1e-6)
    assert state.model.item() == pytest.approx(3.0, abs=1e-6)


def test_it_converges_with_momentum():
    federation = Quadratics(feddc(0.1).client, SERVER, ((1, 0), (1, 4)), (1, 1), lr=0.01, steps=10, momentum=0.9)
    state = start(SERVER, 1.0)
    for index in range(100):
        state = federation.round(state, index)
    assert state.model.item() == pytest.approx(2.0, abs=1e-3)  # the mean of the two minima


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "local", [{"epochs": 2}, {"lr_decay": 0.5, "weight_decay": 0.1, "max_gradient_norm": 0.3, "momentum": 0.5}]
)
def test_networks(make_experiment, network, local):
    assert_as_naive(make_experiment, network, partial(NaiveFedDC, alpha=0.3), local=local, strategy=feddc(0.3))


def test_without_drift_clients_run_plain_sgd(make_experiment):
    """α = 0 and empty client states: every client ends where plain SGD ends."""
    alike = {"network": mlp, "hardware": {"executor": "in_process"}}
    plain = Simulation(make_experiment(**alike, clients_per_round=COHORT))
    own = Simulation(make_experiment(**alike, strategy=feddc(0.0)))
    state = own.initial()
    received = SERVER.broadcast(state.server)
    for client in range(6):
        cohort = torch.tensor([client])
        tasks = [CohortJob(cohort, 0, received, simulation.initial().client_states) for simulation in (plain, own)]
        ended = [
            next(first_executor(s).client_results(task)).model.clone()
            for s, task in zip((plain, own), tasks, strict=True)
        ]
        assert torch.equal(*ended)


def test_a_client_receives_and_sends_two_vectors(make_experiment):
    simulation = Simulation(make_experiment(network=mlp, strategy=feddc(0.1), clients_per_round=COHORT))
    totals = simulation.advance(simulation.initial())[0].totals
    size = simulation.network.layout.size
    assert (totals.params_down, totals.params_up) == (2 * COHORT * size, 2 * COHORT * size)


def test_the_steps_of_a_mean_client_are_rounded_up(make_experiment):
    # a client of 8.5 samples makes ⌈8.5 / 4⌉ = 3 steps, not ⌈8 / 4⌉
    simulation = Simulation(make_experiment(network=mlp, sizes=(6, 11), clients_per_round=2))
    task = CohortJob(torch.tensor([0, 1]), 0, {"model": simulation.initial().server.model}, ClientStates())
    assert first_executor(simulation).infos(task).mean_steps == 3
