"""q-FFL: worked numbers, networks against a naive server, its plain mean for q = 0, its cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation

from ..helpers.naive_strategies import NaiveQFFL
from ..helpers.quadratic_clients import SGD, UNIFORM, info_of, round_of, senders_of, start, update_of
from ..helpers.small_networks import NETWORKS, assert_as_naive, batch_norm, final_model, mlp

SERVER = option("strategy/server", "qffl")


def qffl(q: float) -> Strategy:
    return Strategy(client=option("strategy/client", "qffl", q=q), server=SERVER)


@pytest.mark.parametrize(
    ("q", "steps", "curvatures", "expected"),
    [(0.0, (2, 5), (10, 10), 0.65), (1.0, (4, 2.5), (24, 30), 0.8796296), (2.0, (8, 1.25), (56, 27.5), 0.8892216)],
)
def test_a_round(q, steps, curvatures, expected):
    """w = 1, η = 0.1, ends (0.8, 0.5), F = (2, 0.5); Δ_k and h_k as the paper has them."""
    client, uploads = qffl(q).client, []
    received = SERVER.broadcast(start(SERVER, 1.0))
    for end, loss in ((0.8, 2.0), (0.5, 0.5)):
        info = replace(info_of((1, 3), 0, 1, 0.1), initial_loss=torch.tensor([loss]))
        uploads.append(client.finish(torch.tensor([end]), received, {}, {}, info)[0])
    powers = torch.cat([sent["power"] for sent in uploads])
    assert [(sent["power"] * sent["step"]).item() for sent in uploads] == pytest.approx(steps, rel=1e-5)
    assert [(sent["power"] * sent["curvature"]).item() for sent in uploads] == pytest.approx(curvatures, rel=1e-5)
    senders = replace(senders_of((1, 3)), reports={"power": powers})
    assert SERVER.weights(start(SERVER, 1.0), senders).tolist() == powers.tolist()
    mean = {name: sum(sent["power"] * sent[name] for sent in uploads) / powers.sum() for name in ("step", "curvature")}
    state, _ = SERVER.aggregate(start(SERVER, 1.0), update_of(mean, (1, 3)), round_of(0, 2))
    assert state.model.item() == pytest.approx(expected, abs=1e-6)


def test_a_large_q_and_small_losses():
    """F_k^q is 1e-60, far below the least float32, but only the ratios count."""
    client, q, loss = qffl(15.0).client, 15.0, 1e-4
    uploads = []
    for factor, end in ((1.0, 0.0), (2.0, -1e-6)):
        info = replace(info_of((1, 3), 0, 1, 0.1), initial_loss=torch.tensor([factor * loss], dtype=torch.float64))
        uploads.append(client.finish(torch.tensor([end]), SERVER.broadcast(start(SERVER, 0.0)), {}, {}, info)[0])
    weights = SERVER.weights(
        start(SERVER, 0.0), replace(senders_of((1, 3)), reports={"power": torch.cat([u["power"] for u in uploads])})
    )
    assert (weights[1] / weights[0]).item() == pytest.approx(2**q, rel=1e-4)
    shares = weights / weights.sum()
    mean = {
        name: sum(share * sent[name] for share, sent in zip(shares, uploads, strict=True))
        for name in ("step", "curvature")
    }
    state, _ = SERVER.aggregate(start(SERVER, 0.0), update_of(mean, (1, 3)), round_of(0, 2))
    # by hand: Δw = (0, 1e-5), h / F^q = (10, 10 + 15e-10 / 2e-4), weights (1, 32768) / 32769
    expected = -(32768 * 1e-5) / (10 + 32768 * (10 + 15e-10 / 2e-4))
    assert state.model.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("q", [0.5, 2.0])
def test_networks(make_experiment, network, q):
    local = {"epochs": 2, "lr_decay": 0.5}
    naive = partial(NaiveQFFL, q=q)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=qffl(q), tolerance=2e-5)


@pytest.mark.parametrize("network", [mlp, batch_norm])
def test_q_zero_is_the_plain_mean(make_experiment, network):
    experiment = make_experiment(network=network, local={"epochs": 2}, strategy=Strategy(client=SGD, server=UNIFORM))
    fair = final_model(replace(experiment, strategy=qffl(0.0)), 3)
    torch.testing.assert_close(fair, final_model(experiment, 3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_costs(make_experiment, executor):
    """Clients of 3 + 12 + 8 + 5 + 20 + 12 samples: one forward pass over all, then two epochs; P + 2 numbers up."""
    simulation = Simulation(
        make_experiment(
            network=mlp,
            strategy=qffl(1.0),
            clients_per_round=6,
            local={"epochs": 2},
            hardware={"executor": executor},
        )
    )
    totals = simulation.advance(simulation.advance(simulation.initial())[0])[0].totals
    size = simulation.network.layout.size
    assert (totals.forward_samples, totals.client_samples) == (2 * 60, 2 * 120)
    assert (totals.params_down, totals.params_up) == (2 * 6 * size, 2 * 6 * (size + 2))
