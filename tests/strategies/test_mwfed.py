"""MW-Fed: worked numbers, networks against a naive server, the round's work."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.simulation.simulation import Simulation

from ..helpers.appeal import RHO, constant
from ..helpers.naive_appeal import NaiveMWFed
from ..helpers.naive_averaging import NaiveClients
from ..helpers.quadratic_clients import info_of, round_of, senders_of, start, update_of
from ..helpers.small_networks import COHORT, NETWORKS, assert_equal_after, data_of, mlp, network_of
from ..helpers.strategies import mwfed


def excess(loss: float) -> torch.Tensor:
    info = replace(
        info_of((1,), 0, 1, 0.1),
        initial_loss=torch.tensor([loss], dtype=torch.float64),
        threshold=torch.tensor([RHO], dtype=torch.float64),
    )
    return mwfed().client.finish(torch.zeros(1), {}, {}, {}, info)[0]["excess"]


@pytest.mark.parametrize(
    ("growth", "losses", "expected"),
    [
        ("threshold", (3.0, 0.5), (1.2, 0.8)),  # (1.5, 1) normalised
        ("threshold", (1.0, 0.5), (1.2, 0.8)),  # a loss at the threshold does not meet it
        ("exponential", (1.0 + 2 * 0.4054651081, 1.0), (1.2, 0.8)),  # e^(0.5 * 2 ln 1.5) = 1.5
    ],
)
def test_one_round(growth, losses, expected):
    server = mwfed(growth=growth).server
    state = start(server, 1.0)
    assert state.slots["weights"].tolist() == [1, 1]
    reports = {"excess": torch.cat([excess(loss) for loss in losses])}
    update = replace(update_of({"model": torch.tensor([0.25])}, (1, 3)), reports=reports)
    state, metrics = server.aggregate(state, update, round_of(0, 2))
    assert state.model.item() == 0.25
    assert state.slots["weights"].tolist() == pytest.approx(expected, abs=1e-9)
    assert metrics == {"largest_weight": pytest.approx(1.2)}
    assert server.weights(state, senders_of((1, 3))).tolist() == pytest.approx(expected, abs=1e-9)
    cohort, usual = torch.tensor([0, 1]), torch.tensor([5, 5])
    assert server.steps(state, cohort, usual, round_of(0, 2)).tolist() == [6, 4]
    assert server.steps(state, torch.tensor([1]), torch.tensor([5]), round_of(0, 2)).tolist() == [5]


def test_everybody_makes_a_step():
    server = mwfed().server
    state = start(server, 1.0)
    state = replace(state, slots={"weights": torch.tensor([1.999, 0.001], dtype=torch.float64)})
    assert server.steps(state, torch.tensor([1, 0]), torch.tensor([2, 2]), round_of(0, 2)).tolist() == [1, 4]


def test_weights_survive_any_loss():
    """e^(0.5 * 1e6) is no number; the others still share out the work of a round of theirs."""
    server = mwfed(growth="exponential").server
    state = start(server, 1.0)
    for _ in range(3):
        reports = {"excess": torch.tensor([1e6, -1e6], dtype=torch.float64)}
        update = replace(update_of({"model": torch.tensor([0.25])}, (1, 3)), reports=reports)
        state, _ = server.aggregate(state, update, round_of(0, 2))
    weights = state.slots["weights"]
    assert weights.sum().item() == pytest.approx(2) and (weights > 0).all()
    assert server.steps(state, torch.tensor([1]), torch.tensor([5]), round_of(0, 2)).tolist() == [5]
    assert server.steps(state, torch.tensor([0, 1]), torch.tensor([5, 5]), round_of(0, 2)).tolist() == [10, 1]


@pytest.mark.parametrize(
    ("network", "executor"), [("mlp", "in_process"), ("mlp", "vectorized"), ("batch_norm", "in_process")]
)
@pytest.mark.parametrize(
    ("growth", "local"),
    [("threshold", {"epochs": None, "steps": 4, "momentum": 0.5}), ("exponential", {"epochs": 2, "lr_decay": 0.5})],
)
def test_networks(make_experiment, network, executor, growth, local):
    build = NETWORKS[network]
    experiment = make_experiment(
        network=build,
        local=local,
        strategy=mwfed(0.7, growth),
        appeal=constant(),
        clients_per_round=COHORT,
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    naive = NaiveMWFed(
        network_of(simulation, build),
        data_of(simulation),
        NaiveClients(**local),
        0,
        rho=[RHO] * 6,
        gamma=0.7,
        exponential=growth == "exponential",
    )
    state = assert_equal_after(simulation, naive)
    weights = state.server.slots["weights"].tolist()
    assert weights == pytest.approx(list(naive.omega_of.values()), rel=1e-5)
    assert sum(weights) == pytest.approx(6) and len(set(weights)) > 1


def test_a_client_sends_one_number_more_and_looks_at_its_samples_once(make_experiment):
    experiment = make_experiment(network=mlp, strategy=mwfed(), appeal=constant(), clients_per_round=6)
    simulation = Simulation(experiment)
    totals = simulation.advance(simulation.initial())[0].totals
    size = simulation.network.layout.size
    assert (totals.params_up, totals.params_down, totals.forward_samples) == (6 * (size + 1), 6 * size, 60)
