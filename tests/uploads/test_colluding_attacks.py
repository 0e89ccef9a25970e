"""Attackers that know the honest uploads: what they send, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.models.flat_network import Layout
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import CohortUpdate, Senders
from fedrun.strategies.sgd import SGD
from fedrun.strategies.vectors import MODEL
from fedrun.uploads.attacks.alie import largest_deviation
from fedrun.uploads.attacks.colluding import Colluding

from ..helpers.poisoned_samples import poisoned_experiment
from ..helpers.small_networks import mlp

HONEST = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 3.0]])  # μ = (2, 1), σ = (√(2/3), √2)


def forged(name, **settings):
    return option("attack", name, **settings).forged(HONEST, 2).tolist()


def test_a_little_is_enough():
    assert forged("alie", deviations=1.5) == pytest.approx([2 - 1.5 * (2 / 3) ** 0.5, 1 - 1.5 * 2**0.5])
    # 50 clients, 24 attackers: s = 2 of 26 honest ones must be on their side: Φ⁻¹(24/26)
    assert largest_deviation(50, 24) == pytest.approx(1.4260769, rel=1e-6)
    assert largest_deviation(5, 3) == 0.0
    assert forged("alie") == pytest.approx(
        [2 - largest_deviation(5, 2) * (2 / 3) ** 0.5, 1 - largest_deviation(5, 2) * 2**0.5]
    )


def test_inner_product_manipulation():
    assert forged("ipm", scale=0.5) == [-1.0, -0.5]


@pytest.mark.parametrize("direction", ["std", "unit", "sign"])
def test_min_max_is_as_far_as_two_honest_clients(direction):
    """The honest are at most √10 apart; the forged one is exactly that far from one of them, along its direction."""
    sent = torch.tensor(forged("min_max", direction=direction))
    assert (sent - HONEST).norm(dim=1).max().item() == pytest.approx(10**0.5, rel=1e-5)
    p = {"std": [-((2 / 3) ** 0.5), -(2**0.5)], "unit": [-2.0, -1.0], "sign": [-1.0, -1.0]}[direction]
    moved = sent - torch.tensor([2.0, 1.0])
    assert (moved / torch.tensor(p)).tolist() == pytest.approx([moved[0].item() / p[0]] * 2, rel=1e-4)
    assert moved[0] < 0


def update(clients, models, weights):
    rows = torch.tensor(models)
    return CohortUpdate(
        clients=torch.tensor(clients),
        samples=torch.tensor([1] * len(clients)),
        steps=torch.tensor([1] * len(clients)),
        mean={"model": rows.mean(0)},
        weights=weights,
        rows=rows,
        excluded=(),
        loss=0.0,
        score=0.0,
    )


def replaced(clients, weights, rows="none", norms=None):
    attack = option("attack", "ipm", scale=1.0)
    models = [[2.0, 7.0], [4.0, 7.0], [9.0, 7.0]][: len(clients)]
    received, weights = torch.tensor([1.0, 7.0]), torch.tensor(weights, dtype=torch.float64)
    mean = (weights[:, None] * torch.tensor(models)).sum(0) / weights.sum()
    before = update(clients, models, weights)
    before.mean["model"].copy_(mean)
    before = replace(before, squared_norms=norms)
    layout = Layout((), trainable=1, size=2, head=slice(0, 1), classes=1, embedding=1)
    return attack.replaced(before, frozenset({5, 6}), received, rows, layout)


def test_the_mean_and_the_rows_with_forged_uploads():
    """From x = 1 client 3 moves by 3, so attackers 5 and 6 send -3; the entry beyond T stays."""
    after = replaced([5, 3, 6], [1.0, 2.0, 1.0], "all")
    assert after.rows.tolist() == [[-2.0, 7.0], [4.0, 7.0], [-2.0, 7.0]]
    assert after.mean["model"].tolist() == pytest.approx([(1 * -2 + 2 * 4 + 1 * -2) / 4, 7.0])
    assert replaced([5, 3, 6], [1.0, 2.0, 1.0], "head").rows.tolist() == [[-2.0], [4.0], [-2.0]]
    assert replaced([5, 3, 6], [1.0, 2.0, 1.0]).rows is None


def test_the_lengths_of_forged_displacements():
    """The honest client moved by 3, and the attackers, which would have moved by 1 and 8, send -3."""
    norms = torch.tensor([1.0, 9.0, 64.0], dtype=torch.float64)
    assert replaced([5, 3, 6], [1.0, 2.0, 1.0], norms=norms).squared_norms.tolist() == [9.0, 9.0, 9.0]
    assert replaced([1, 2, 3], [1.0, 2.0, 1.0], norms=norms).squared_norms.tolist() == [1.0, 9.0, 64.0]
    assert replaced([5, 3, 6], [1.0, 2.0, 1.0]).squared_norms is None


@pytest.mark.parametrize("clients", [[1, 2, 3], [5, 6]])
def test_rounds_of_one_kind_stay(clients):
    after = replaced(clients, [1.0] * len(clients), "all")
    assert after.rows.tolist() == [[2.0, 7.0], [4.0, 7.0], [9.0, 7.0]][: len(clients)]


def test_forged_uploads_weigh_as_much_as_those_they_replace(make_experiment, monkeypatch):
    """FedDisco's weights depend on the whole cohort, and one client's upload is not finite."""
    server = option("strategy/server", "feddisco", discrepancy_weight=0.5, offset=0.1)
    parts = {"attack": option("attack", "ipm", share=0.3), "strategy": Strategy(client=SGD(), server=server)}
    simulation = Simulation(poisoned_experiment(make_experiment, 1, network=mlp, **parts))
    combined = []

    def watched(self, update, *arguments):
        after = forge(self, update, *arguments)
        combined.append((update, after.mean[MODEL]))
        return after

    forge = Colluding.replaced
    monkeypatch.setattr(Colluding, "replaced", watched)
    simulation.advance(simulation.initial())
    ((update, mean),) = combined
    everyone = torch.arange(4)
    labels, clients = simulation.federation.dataset.targets, simulation.federation.train
    counts = torch.stack([torch.bincount(labels[clients[k]], minlength=3) for k in everyone.tolist()])
    whole = server.weights(None, Senders(clients=everyone, samples=torch.tensor([4, 8, 12, 16]), label_counts=counts))
    weights = whole[update.clients] / whole[update.clients].sum()
    assert sorted(update.clients.tolist()) == [0, 2, 3]
    torch.testing.assert_close(mean, weights.float() @ update.rows)
