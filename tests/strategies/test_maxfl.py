"""MaxFL: worked numbers, networks against a naive server, its reductions, local tuning, costs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.maxfl import nearness

from ..helpers.appeal import RHO, constant
from ..helpers.naive_appeal import NaiveMaxFL
from ..helpers.quadratic_clients import SGD, UNIFORM, info_of, round_of, senders_of, start, update_of
from ..helpers.small_networks import COHORT, NETWORKS, assert_as_naive, batch_norm, final_model, mlp
from ..helpers.strategies import maxfl


def test_one_round():
    """F = (1, 2, 5), ρ = 1, w = 0, Δw = (1, -1, 10), so y = (-1, 1, -10); ε = 1e-3."""
    client, server = maxfl().client, maxfl(eps=1e-3).server
    sent = []
    for loss, end in zip((1.0, 2.0, 5.0), (-1.0, 1.0, -10.0), strict=True):
        info = replace(
            info_of((1,), 0, 1, 0.1),
            initial_loss=torch.tensor([loss], dtype=torch.float64),
            threshold=torch.tensor([RHO], dtype=torch.float64),
        )
        uploads, kept = client.finish(torch.tensor([end]), {"model": torch.zeros(1)}, {}, {}, info)
        assert not kept
        sent.append(uploads)
    q = torch.cat([each["nearness"] for each in sent])
    assert q.tolist() == pytest.approx([0.25, 0.1966119, 0.0176627], abs=1e-7)
    assert q.sum().item() == pytest.approx(0.4642746, abs=1e-7)
    senders = replace(senders_of((1, 7, 50)), reports={"nearness": q})
    state = start(server, 0.0)
    weights = server.weights(state, senders)
    assert torch.equal(weights, q)
    mean = sum(w * each["model"] for w, each in zip(weights, sent, strict=True)) / weights.sum()
    update = replace(update_of({"model": mean.float()}, (1, 7, 50)), weights=weights.double())
    state, metrics = server.aggregate(state, update, round_of(0, 3))
    assert state.model.item() == pytest.approx(-0.4943642, abs=1e-6)
    assert 1 / (q.sum().item() + 1e-3) == pytest.approx(2.1492682, abs=1e-6)
    assert metrics["nearness"] == pytest.approx(0.4642746 / 3, abs=1e-7)


def test_the_sigmoids_slope_is_symmetric_and_survives_far_away():
    x = torch.tensor([-1.0, 1.0, 700.0, -700.0], dtype=torch.float64)
    q = nearness(x + RHO, torch.full_like(x, RHO))
    assert q[:2].tolist() == pytest.approx([0.1966119, 0.1966119], abs=1e-7)
    assert q[2].item() == pytest.approx(9.859676543759770e-305, rel=1e-9) == q[3].item()  # e^-700


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("tuning", [0, 3])
def test_networks(make_experiment, network, tuning):
    local, strategy = {"epochs": None, "steps": 4, "momentum": 0.5, "lr_decay": 0.5}, maxfl(tuning, lr=0.8, eps=0.2)
    naive = partial(NaiveMaxFL, rho=[RHO] * 6, tuning_steps=tuning, lr=0.8, eps=0.2)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=strategy, appeal=constant())


def test_equal_losses_give_the_plain_mean(make_experiment):
    """Everybody exactly at its threshold: q = 1/4 for all."""
    experiment = make_experiment(network=batch_norm, strategy=maxfl(), appeal=constant(), clients_per_round=COHORT)
    simulation = Simulation(experiment)
    state = simulation.initial()
    simulation.thresholds["clients"].train[:] = simulation.evaluator(state).on_training(state)[0]
    plain = replace(experiment, strategy=Strategy(client=SGD, server=UNIFORM), appeal=option("appeal", "none"))
    state, metrics = simulation.advance(state)
    assert metrics["server/nearness"] == pytest.approx(0.25, abs=1e-9)
    torch.testing.assert_close(state.server.model, final_model(plain, 1), rtol=1e-5, atol=1e-6)


def test_a_client_sends_one_number_more_and_looks_at_its_samples_once(make_experiment):
    """60 samples, one epoch; 3 tuning steps of B = 4: 3 + 3 + 3, then 12, 8 + 4 (5: 4 + 1 + 4), 12, 12."""
    experiment = make_experiment(network=mlp, strategy=maxfl(3), appeal=constant(), clients_per_round=6)
    simulation = Simulation(experiment)
    totals = simulation.advance(simulation.initial())[0].totals
    size = simulation.network.layout.size
    assert (totals.params_up, totals.params_down) == (6 * (size + 1), 6 * size)
    assert totals.forward_samples == 60
    assert totals.client_samples == 60 + 9 + 12 + 12 + 9 + 12 + 12


def test_tuning_is_for_the_measurement_only(make_experiment):
    """With everybody's q equal, tuned or not, the models must agree: training begins at the broadcast model."""
    experiment = make_experiment(network=mlp, strategy=maxfl(), appeal=constant(1e-6), clients_per_round=1)
    tuned = replace(experiment, strategy=maxfl(5))
    torch.testing.assert_close(final_model(tuned, 2), final_model(experiment, 2), rtol=1e-5, atol=1e-6)
