"""Clients that come only while the global model appeals to them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.appeal.base import Thresholds
from fedrun.experiment.participation.base import select
from fedrun.simulation.simulation import Simulation

from ..helpers.appeal import constant
from ..helpers.small_networks import advanced, final_model, mlp


def flexible(share: float = 0.25, draws: str = "draw_willing"):
    return option("participation", "flexible", mandatory_share=share, draws=draws)


@pytest.mark.parametrize(
    ("share", "rounds", "mandatory"), [(0.1, 30, 3), (0.1, 10, 1), (0.1, 5, 1), (0.0, 10, 0), (1.0, 4, 4), (0.3, 10, 3)]
)
def test_mandatory_rounds(share, rounds, mandatory):
    assert [flexible(share).mandatory(t, rounds) for t in range(rounds)] == [t < mandatory for t in range(rounds)]


def willing(simulation, state, rho):
    """To whom a model appeals, by an ordinary loop over ordinary losses."""
    network = mlp(simulation.dataset.spec)
    network.load_state_dict(simulation.network.layout.views(state.server.model.clone()))
    found = []
    for client in range(len(simulation.federation.train)):
        own = simulation.federation.train[client]
        inputs, labels = simulation.dataset.inputs[own].float() / 255, simulation.dataset.targets[own]
        if torch.nn.functional.cross_entropy(network(inputs), labels).item() < rho:
            found.append(client)
    return found


def state_and_threshold(simulation, quantile):
    """A state after two rounds, and a threshold below which that share of the clients' losses lies."""
    state = advanced(simulation, 2)
    return state, simulation.evaluator(state).on_training(state)[0].quantile(quantile).item()


@pytest.mark.parametrize(("quantile", "count"), [(0.3, 2), (0.7, 4), (0.9, 5)])
def test_both_ways_to_draw(make_experiment, quantile, count):
    """Three asked for, of two, four or five who would come."""
    experiment = make_experiment(network=mlp, clients_per_round=3, rounds=8)
    state, rho = state_and_threshold(Simulation(experiment), quantile)
    for draws in ("draw_willing", "draw_then_drop"):
        chosen = Simulation(replace(experiment, appeal=constant(rho), participation=flexible(draws=draws)))
        there = willing(chosen, state, rho)
        assert len(there) == count
        drawn = []
        for round in range(2, 8):  # rounds 0 and 1 are mandatory
            uploads = chosen.uploads(replace(state, round=round))
            cohort, metrics = uploads.clients, uploads.metrics
            assert set(cohort.tolist()) <= set(there) and len(set(cohort.tolist())) == len(cohort)
            assert metrics == {"clients/willing": count, "clients/participants": len(cohort)}
            drawn.append(len(cohort))
            if draws == "draw_then_drop":
                assert cohort.tolist() == [k for k in select(0, round, 6, 3).tolist() if k in there]
        if draws == "draw_willing":
            assert drawn == [min(3, count)] * 6


def test_everybody_comes_while_it_is_mandatory(make_experiment):
    """Nobody is willing, and yet the first two of eight rounds are those without a rule."""
    experiment = make_experiment(network=mlp, clients_per_round=3, rounds=8, appeal=constant(1e-6))
    for draws in ("draw_willing", "draw_then_drop"):
        bound = replace(experiment, participation=flexible(draws=draws))
        assert torch.equal(final_model(bound, 2), final_model(experiment, 2))
        simulation = Simulation(bound)
        uploads = simulation.uploads(simulation.initial())
        cohort, metrics = uploads.clients, uploads.metrics
        assert cohort.tolist() == select(0, 0, 6, 3).tolist()
        assert metrics == {"clients/willing": 6, "clients/participants": 3}


def test_nobody_comes(make_experiment, caplog, monkeypatch):
    """The model stays, the round counts, nothing is charged or evaluated again, and the run goes on."""
    experiment = make_experiment(
        network=mlp, clients_per_round=3, rounds=8, appeal=constant(1e-6), participation=flexible()
    )
    simulation = Simulation(experiment)
    state = advanced(simulation, 2)
    with caplog.at_level(logging.INFO):
        after, metrics = simulation.advance(state)
    assert metrics.pop("time/round_s") >= 0  # without it, curves against time would end here
    assert metrics == {"clients/willing": 0, "clients/participants": 0}
    assert after.round == 3
    assert after.server is state.server and after.totals == state.totals
    assert "round 3: 0 of 3 clients take part" in caplog.text
    with monkeypatch.context() as changed:
        changed.setattr(simulation.network, "load", lambda model: pytest.fail("the same model is evaluated again"))
        assert simulation.advance(after)[0].round == 4
    assert simulation.test(after)["test/loss"] == simulation.test(state)["test/loss"]


def test_a_loss_at_the_threshold_is_not_willing(make_experiment):
    experiment = make_experiment(
        network=mlp, clients_per_round=3, rounds=8, appeal=constant(), participation=flexible(0.0)
    )
    simulation = Simulation(experiment)
    state = simulation.initial()
    simulation.thresholds["clients"].train[:] = simulation.evaluator(state).on_training(state)[0]
    uploads = simulation.uploads(state)
    cohort, metrics = uploads.clients, uploads.metrics
    assert (len(cohort), metrics["clients/willing"]) == (0, 0)


def test_willingness_is_by_the_threshold_of_training_losses(make_experiment):
    experiment = make_experiment(
        network=mlp, clients_per_round=3, rounds=8, appeal=constant(), participation=flexible(0.0)
    )
    simulation = Simulation(experiment)
    high, low = torch.full((6,), 1e6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    simulation.thresholds["clients"] = Thresholds(high, low, None)
    assert simulation.uploads(simulation.initial()).metrics["clients/willing"] == 6
