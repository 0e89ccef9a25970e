"""Attackers: who they are, what they send, what they report, what they train on."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pyarrow.parquet
import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.population import Population
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.runs import session
from fedrun.runs.client_table import client_table, save_clients
from fedrun.runs.run import run
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.system.randomness import generator
from fedrun.uploads.attacks.gaussian import Gaussian

from ..helpers.appeal import RHO, constant
from ..helpers.naive_appeal import NaiveMaxFL, NaiveMWFed
from ..helpers.naive_averaging import NaiveClients
from ..helpers.quadratic_clients import FEDAVG, SGD, UNIFORM
from ..helpers.small_networks import assert_equal_after, batch_norm, data_of, final_model, mlp, network_of
from ..helpers.strategies import maxfl, mwfed

GAUSSIAN = option("attack", "gaussian", share=0.34, noise=0.5, inflation=3.0)
SIGN_FLIP = option("attack", "sign_flip", share=0.34, scale=2.0)
LABEL_FLIP = option("attack", "label_flip", share=0.34)


def test_attackers_are_drawn_by_the_seed():
    assert len(GAUSSIAN.attackers(6, 0)) == 2
    drawn = {tuple(GAUSSIAN.attackers(6, seed).tolist()) for seed in range(30)}
    assert len(drawn) > 8 and all(a < b for a, b in drawn)
    pinned = replace(GAUSSIAN, seed=4)
    assert pinned.attackers(6, 0).tolist() == pinned.attackers(6, 9).tolist() == GAUSSIAN.attackers(6, 4).tolist()
    assert len(replace(GAUSSIAN, share=0.0).attackers(6, 0)) == 0


def test_they_are_named_at_the_end(make_experiment, tmp_path):
    simulation = Simulation(make_experiment(network=mlp, attack=GAUSSIAN, seed=3))
    save_clients(client_table(simulation, simulation.initial()), tmp_path / "clients.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "clients.parquet").to_pylist()
    named = [int(row["client"]) for row in table[:6] if row["attacker"]]
    assert named == GAUSSIAN.attackers(6, 3).tolist() == sorted(simulation.federation.attackers)
    assert not any(row["attacker"] for row in table[6:])


def test_a_reversed_update_by_hand():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([1.5, 1.0])
    assert SIGN_FLIP.tampered(y, x, torch.Generator()).tolist() == [0.0, 4.0]  # x - 2 (y - x)
    assert SIGN_FLIP.reported(torch.tensor(2.0)).item() == 2.0


@pytest.mark.parametrize("attack", [GAUSSIAN, SIGN_FLIP], ids=["gaussian", "sign_flip"])
def test_what_the_server_receives(make_experiment, attack):
    """One client: the model is what it sent, buffers untouched; noise is drawn for the round and the client."""
    experiment = make_experiment(network=batch_norm, sizes=(12,), clients_per_round=1)
    honest = final_model(experiment, 1)
    attacked = replace(experiment, attack=replace(attack, share=1.0))
    simulation = Simulation(attacked)
    initial, trainable = simulation.initial().server.model, simulation.network.layout.trainable
    sent = final_model(attacked, 1)
    if attack is GAUSSIAN:
        noise = torch.randn(trainable, generator=generator(0, "attack", 0, 0))
        expected = honest[:trainable] + 0.5 * noise
    else:
        expected = initial[:trainable] - 2 * (honest - initial)[:trainable]
    torch.testing.assert_close(sent[:trainable], expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(sent[trainable:], honest[trainable:])


def test_noise_is_addressed(make_experiment):
    """The same in both executors, and in a state taken up by another process; different in every round."""
    strategy = Strategy(client=SGD, server=UNIFORM)
    attack = replace(GAUSSIAN, share=1.0, noise=1e3)
    models = []
    for executor in ("in_process", "vectorized"):
        simulation = Simulation(
            make_experiment(network=mlp, attack=attack, strategy=strategy, hardware={"executor": executor})
        )
        first, _ = simulation.advance(simulation.initial())
        torch.rand(7)
        second, _ = Simulation(simulation.experiment).advance(first)
        assert torch.equal(second.server.model, simulation.advance(first)[0].server.model)
        models.append(second.server.model)
        repeated, _ = simulation.advance(replace(first, round=0))
        assert not torch.allclose(repeated.server.model, second.server.model, atol=1.0)
    torch.testing.assert_close(*models, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize(("strategy", "naive_server"), [(maxfl(), NaiveMaxFL), (mwfed(), NaiveMWFed)])
def test_an_inflated_loss(make_experiment, strategy, naive_server, executor):
    """Without noise: the naive server, told a loss larger by 3 by the attackers."""
    experiment = make_experiment(
        network=mlp,
        strategy=strategy,
        appeal=constant(),
        attack=replace(GAUSSIAN, noise=0.0),
        clients_per_round=4,
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    settings = {"gamma": 0.5} if naive_server is NaiveMWFed else {}
    naive = naive_server(
        network_of(simulation, mlp),
        data_of(simulation),
        NaiveClients(),
        0,
        rho=[RHO] * 6,
        inflated=dict.fromkeys(simulation.federation.attackers, 3.0),
        **settings,
    )
    assert_equal_after(simulation, naive)


def test_inflation_lowers_maxfls_weight_and_raises_mwfeds(make_experiment):
    """For MW-Fed only the attackers' losses exceed ρ = 50; MaxFL's q of an attacker is all but 0."""
    attack = replace(GAUSSIAN, noise=0.0, inflation=100.0)
    plain = make_experiment(network=mlp, clients_per_round=6, attack=attack)
    fair = Simulation(replace(plain, strategy=mwfed(), appeal=constant(50.0)))
    state, _ = fair.advance(fair.initial())
    weights = state.server.slots["weights"]
    attackers = sorted(fair.federation.attackers)
    others = [client for client in range(6) if client not in attackers]
    assert weights[attackers].tolist() == pytest.approx([1.5 * 6 / 7] * 2)
    assert weights[others].tolist() == pytest.approx([6 / 7] * 4)
    nearness = {}
    for name, chosen in (("honest", option("attack", "none")), ("attacked", attack)):
        simulation = Simulation(replace(plain, strategy=maxfl(), appeal=constant(1.0), attack=chosen))
        losses = simulation.evaluator(simulation.initial()).on_training(simulation.initial())[0] - 1.0
        q = torch.sigmoid(losses) * (1 - torch.sigmoid(losses))
        nearness[name] = simulation.advance(simulation.initial())[1]["server/nearness"]
        expected = q.mean() if name == "honest" else q[others].sum() / 6
        assert nearness[name] == pytest.approx(expected.item(), rel=1e-5)
    assert nearness["attacked"] < nearness["honest"]


def test_false_labels_are_for_training_only(make_experiment):
    population = option_population(test_share=0.4)
    experiment = make_experiment(network=mlp, population=population)
    honest, attacked = Simulation(experiment), Simulation(replace(experiment, attack=LABEL_FLIP))
    before, after = honest.dataset.targets, attacked.dataset.targets
    changed = torch.cat([honest.federation.train[client] for client in sorted(attacked.federation.attackers)])
    expected = before.clone()
    expected[changed] = 2 - before[changed]
    assert torch.equal(after, expected) and not torch.equal(after, before)
    assert honest.federation.client_test is not None
    assert torch.equal(after[honest.federation.client_test.samples], before[honest.federation.client_test.samples])
    assert torch.equal(after[honest.federation.test.samples], before[honest.federation.test.samples])
    assert torch.equal(attacked.phase(attacked.initial()).samples.targets, after)


def test_false_labels_of_a_client_whose_labels_are_flipped_anyway(make_experiment):
    """They stay flipped: twice would be the truth."""
    everybody = make_experiment(network=mlp, population=option_population(flipped_share=1.0))
    flipped = Simulation(everybody).dataset.targets
    assert torch.equal(Simulation(replace(everybody, attack=LABEL_FLIP)).dataset.targets, flipped)
    some = replace(everybody, population=option_population(flipped_share=0.5))
    honest, attacked = Simulation(some), Simulation(replace(some, attack=replace(LABEL_FLIP, share=1.0)))
    true = Simulation(replace(some, population=option_population())).dataset.targets
    own = attacked.federation.train.samples
    assert torch.equal(attacked.dataset.targets[own], 2 - true[own])
    assert not torch.equal(honest.dataset.targets[own], 2 - true[own])


def option_population(**changes):
    return Population(
        **{
            "unseen_clients": 0,
            "test_share": 0.0,
            "test_of": "auto",
            "flipped_share": 0.0,
            "pooled": False,
            "seed": None,
            **changes,
        }
    )


@pytest.mark.parametrize("strategy", ["fedavg", "fedumf"])
def test_uploads_beyond_all_numbers_are_counted_and_named(strategy, tmp_path, monkeypatch):
    """Half of eight clients attack; what arrives of the others goes on."""
    monkeypatch.setattr(Gaussian, "tampered", lambda _, model, __, ___: model + math.inf)
    monkeypatch.setattr(session, "plot_labels", lambda _, path: path.write_bytes(b""))
    monkeypatch.setattr(session, "plot_curves", lambda _, path, __: path.write_bytes(b""))
    settings = ["model=logistic", "partition.clients=8", "clients_per_round=5", "rounds=4", "tracking=none"]
    attack = ["attack=gaussian", "attack.share=0.5"]
    keys = [f"strategy={strategy}", *settings, *attack, "hardware.threads=1", f"output_dir={tmp_path}"]
    experiment = build_experiment(compose(keys))
    run(experiment)
    attackers = set(replace(GAUSSIAN, share=0.5).attackers(8, 0).tolist())
    left_out = [sorted(attackers & set(select(0, t, 8, 5).tolist())) for t in range(4)]
    assert sum(map(len, left_out)) >= 4
    text = (experiment.folder / "run.log").read_text()
    warnings = re.findall(r"round (\d): uploads of clients \[([\d, ]+)\] are not finite and are left out", text)
    named = {int(t): sorted(map(int, clients.split(","))) for t, clients in warnings}
    assert named == {t + 1: clients for t, clients in enumerate(left_out) if clients}
    rows = [json.loads(line) for line in (experiment.folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["clients/excluded"] for row in rows[1:]] == [len(clients) for clients in left_out]
    assert rows[-1]["cost/excluded"] == sum(map(len, left_out))
    assert math.isfinite(rows[-1]["test/loss"]) and rows[-1]["test/loss"] < rows[0]["test/loss"]


@pytest.mark.parametrize("name", ["pooled", "solo"])
@pytest.mark.parametrize("attack", [GAUSSIAN, SIGN_FLIP])
def test_where_nothing_is_sent_nothing_can_be_changed(make_experiment, name, attack):
    solo = Strategy(client=option("strategy/client", "solo"), server=option("strategy/server", "solo"))
    changes = {"strategy": solo} if name == "solo" else {"population": option_population(pooled=True)}
    sender = "strategy/client=solo sends nothing" if name == "solo" else "with population.pooled=true no client sends"
    with pytest.raises(InputError, match=rf"attack.share=0.34: {sender} .*attack=label_flip"):
        make_experiment(attack=attack, **changes)


def test_false_labels_in_one_place(make_experiment, tmp_path):
    """The pooled data keep the attackers' labels; the one who holds them is no attacker."""
    population = option_population(pooled=True)
    simulation = Simulation(make_experiment(network=mlp, population=population, attack=LABEL_FLIP))
    state, _ = simulation.advance(simulation.initial())
    honest = Simulation(replace(simulation.experiment, attack=option("attack", "none")))
    assert not torch.equal(honest.advance(honest.initial())[0].server.model, state.server.model)
    save_clients(client_table(simulation, state), tmp_path / "clients.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "clients.parquet").to_pylist()
    assert [(row["client"], row["attacker"]) for row in table] == [("all", False), ("0", False)]


def test_a_share_of_nobody_is_refused():
    attack = option("attack", "sign_flip", share=0.04)
    assert len(attack.attackers(13, 0)) == 1  # 0.52 rounds to one
    with pytest.raises(
        InputError, match=r"^attack\.share=0\.04: at most half of one of 12 clients.* 0\.0833333 for one$"
    ):
        attack.attackers(12, 0)
    with pytest.raises(InputError, match=r"^attack\.share=0\.1: at most half of one of 5 clients; .* 0\.2 for one$"):
        option("attack", "sign_flip", share=0.1).attackers(5, 0)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_what_is_not_sent_is_not_changed(make_experiment, executor):
    """FedPer's heads: one client, which keeps the very head that it keeps without noise in what it sends."""
    strategy = Strategy(client=option("strategy/client", "fedper"), server=FEDAVG)
    honest = make_experiment(
        network=mlp, sizes=(12,), clients_per_round=1, strategy=strategy, hardware={"executor": executor}
    )
    states = []
    for experiment in (honest, replace(honest, attack=replace(GAUSSIAN, share=1.0))):
        simulation = Simulation(experiment)
        states.append(simulation.advance(simulation.initial())[0])
    heads = [state.client_states.held[0]["private"] for state in states]
    assert torch.equal(*heads)
    assert not torch.equal(states[0].server.model, states[1].server.model)
