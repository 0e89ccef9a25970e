"""FedUmf: worked numbers, networks against a server whose idle clients all train, reductions, costs, divergence."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.execution.context import CohortJob
from fedrun.experiment.participation import base as participation
from fedrun.experiment.participation.base import select
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.feddc import FedDCClient

from ..conftest import first_executor
from ..helpers.naive_averaging import NaiveClients
from ..helpers.naive_fedumf import NaiveFedUmf, NaiveFedUmfFedDC
from ..helpers.poisoned_samples import poisoned_experiment
from ..helpers.quadratic_clients import SGD, UNIFORM
from ..helpers.small_networks import (
    COHORT,
    NETWORKS,
    advanced,
    assert_equal_after,
    batch_norm,
    data_of,
    final_model,
    mlp,
    network_of,
)
from ..helpers.strategies import feddc


def fedumf(alpha: float, linear_update: float | None = None) -> Strategy:
    client = SGD if linear_update is None else FedDCClient(alpha=linear_update)
    return Strategy(client=client, server=option("strategy/server", "fedumf", alpha=alpha))


class Constant(nn.Module):
    """One feature that is always 1."""

    def forward(self, x):
        return torch.ones(len(x), 1)


def one_number(spec):
    """A model of one number θ per class, 1 at the start; only the first is used."""
    head = nn.Linear(1, spec.classes, bias=False)
    nn.init.ones_(head.weight)
    return nn.Sequential(OrderedDict(encoder=Constant(), head=head))


def half_square(self, outputs, targets, constants):
    """(θ - 0)^2 / 2 for samples of class 0, (θ - 4)^2 / 2 for those of class 1."""
    return (outputs.logits[:, 0] - 4.0 * targets) ** 2 / 2


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_three_rounds_of_two_quadratic_clients(make_experiment, monkeypatch, executor):
    """M = 1, S = {1}, {2}, {2}. g = -0.1, 0.3; client 2 starts at 0.9 + 0.15; the last time it was not idle before."""
    inputs, targets = torch.zeros(4, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])
    dataset = Dataset(Spec((1, 4, 4), 2), Scaled(255.0), inputs, targets, 2, None, ("a", "b"), "squares")
    cohorts = [torch.tensor([client]) for client in (0, 1, 1, 0)]
    monkeypatch.setattr(type(SGD), "loss", half_square)
    monkeypatch.setattr(participation, "select", lambda _, index, *__: cohorts[index])
    experiment = make_experiment(
        sizes=(1, 1),
        dataset=dataset,
        network=one_number,
        strategy=fedumf(0.5),
        clients_per_round=1,
        rounds=4,
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    state, found = simulation.initial(), []
    for _ in range(3):
        state, _ = simulation.advance(state)
        found.append(state.server.model[0].item())
    assert found == pytest.approx([0.9, 1.345, 1.6105], abs=1e-6)


LOCAL = {
    "falling rate": {"lr": 0.3, "lr_decay": 0.5, "momentum": 0.5, "weight_decay": 0.01},
    "steps": {"epochs": None, "steps": 3},
}


@pytest.mark.parametrize(
    ("network", "executor"), [("mlp", "in_process"), ("mlp", "vectorized"), ("batch_norm", "in_process")]
)
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
@pytest.mark.parametrize("linear_update", [None, 0.3], ids=["sgd", "feddc"])
def test_networks(make_experiment, network, local, linear_update, executor):
    """Computing only those who will be selected equals training everybody."""
    build = NETWORKS[network]
    experiment = make_experiment(
        network=build,
        local=local,
        strategy=fedumf(0.8, linear_update),
        clients_per_round=3,
        rounds=5,
        seed=2,
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    arguments = (network_of(simulation, build), data_of(simulation), NaiveClients(**local), 2)
    if linear_update is None:
        naive = NaiveFedUmf(*arguments, fusion=0.8)
    else:
        naive = NaiveFedUmfFedDC(*arguments, fusion=0.8, alpha=linear_update)
    assert_equal_after(simulation, naive, rounds=5, cohort=3)
    assert naive.fused >= 4
    cohorts = [set(select(2, t, 6, 3).tolist()) for t in range(5)]
    late = [(now & after) - before for before, now, after in zip(cohorts, cohorts[1:], cohorts[2:], strict=False)]
    assert any(late)  # somebody who was idle is selected twice in a row: the second time it starts at θ


@pytest.mark.parametrize("network", [mlp, batch_norm])
def test_without_fusion_it_is_fedavgs_plain_mean(make_experiment, network):
    plain = make_experiment(network=network, strategy=Strategy(client=SGD, server=UNIFORM), clients_per_round=COHORT)
    assert torch.equal(final_model(replace(plain, strategy=fedumf(0.0)), 4), final_model(plain, 4))
    assert not torch.allclose(final_model(replace(plain, strategy=fedumf(1.0)), 4), final_model(plain, 4), atol=1e-3)


def test_without_fusion_the_idle_do_nothing(make_experiment):
    simulation = Simulation(make_experiment(network=mlp, strategy=fedumf(0.0), clients_per_round=3, rounds=3))
    state, _ = simulation.advance(simulation.initial())
    assert not state.client_states.held
    assert state.totals.client_samples == simulation.federation.train.sizes[select(0, 0, 6, 3)].sum()
    assert state.totals.params_down == 3 * simulation.network.layout.size


@pytest.mark.parametrize(("alpha", "cohort"), [(0.0, COHORT), (0.7, 6)])
def test_without_idle_displacements_it_is_feddc(make_experiment, alpha, cohort):
    plain = make_experiment(network=batch_norm, strategy=feddc(0.3), clients_per_round=cohort)
    fused = replace(plain, strategy=fedumf(alpha, 0.3))
    assert torch.equal(final_model(fused, 4), final_model(plain, 4))


def test_everybody_computes_and_listens_and_the_cohort_sends(make_experiment):
    """60 samples in all, two epochs, three rounds; P numbers down to six clients, up from four."""
    simulation = Simulation(
        make_experiment(network=mlp, strategy=fedumf(1.0), clients_per_round=COHORT, local={"epochs": 2}, rounds=3)
    )
    state = advanced(simulation, 3)
    size = simulation.network.layout.size
    assert state.totals.client_samples == 3 * 2 * 60
    assert (state.totals.params_down, state.totals.params_up) == (3 * 6 * size, 3 * COHORT * size)


def test_a_displacement_lasts_for_one_round(make_experiment):
    """After every round only those hold one who were idle in it and are selected in the next."""
    simulation = Simulation(make_experiment(network=mlp, strategy=fedumf(1.0), clients_per_round=3, rounds=6))
    state = simulation.initial()
    for round in range(6):
        now, following = (set(select(0, t, 6, 3).tolist()) for t in (round, round + 1))
        state, _ = simulation.advance(state)
        assert set(state.client_states.held) == (following - now if round < 5 else set())


def test_an_idle_client_that_diverges_is_forgotten(make_experiment):
    """Client 2 of four trains to infinity while it is idle: its state is empty, the others hold their displacement."""
    experiment = poisoned_experiment(make_experiment, 2, network=mlp, strategy=fedumf(1.0), local={"epochs": 2})
    simulation = Simulation(experiment)
    state = simulation.initial()
    task = CohortJob(
        torch.tensor([3, 2, 0]), 0, experiment.strategy.server.broadcast(state.server), state.client_states
    )
    client_states = first_executor(simulation).idle(task)
    assert set(client_states.held) == {0, 3}
    assert all(vectors["idle"].isfinite().all() for vectors in client_states.held.values())


def test_a_displacement_does_not_survive_an_upload_that_is_not_finite(make_experiment, caplog):
    """An endless displacement makes its client's upload endless: it is left out, and starts afresh the next time."""
    simulation = Simulation(make_experiment(network=mlp, strategy=fedumf(1.0), clients_per_round=3, rounds=9))
    state, _ = simulation.advance(simulation.initial())
    (client, *_) = state.client_states.held
    endless = {"idle": torch.full((simulation.network.layout.trainable,), torch.inf)}
    state = replace(state, client_states=state.client_states.updated({client: endless}))
    with caplog.at_level(logging.WARNING):
        state, metrics = simulation.advance(state)
    assert f"round 2: uploads of clients [{client}] are not finite and are left out" in caplog.text
    assert (metrics["clients/excluded"], state.totals.excluded) == (1, 1)
    assert state.server.model.isfinite().all()
    assert client not in state.client_states.held
    for _ in range(4):
        state, metrics = simulation.advance(state)
        assert metrics["clients/excluded"] == 0


def test_idle_clients_count_their_steps(make_experiment):
    # two steps of B = 4 by everybody: 3 + 3, 8, 8, 4 + 1, 8, 8 samples in each of three rounds
    simulation = Simulation(
        make_experiment(
            network=mlp, strategy=fedumf(1.0), clients_per_round=3, local={"epochs": None, "steps": 2}, rounds=3
        )
    )
    assert advanced(simulation, 3).totals.client_samples == 3 * 43


def test_fedpers_resting_clients_are_sent_encoders(make_experiment):
    # FedPer's clients are sent the encoder alone, also those that rest
    strategy = replace(fedumf(1.0), client=option("strategy/client", "fedper"))
    simulation = Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=4, rounds=2))
    totals = advanced(simulation, 2).totals
    encoder = 16 * 6 + 6
    assert (totals.params_down, totals.params_up) == (2 * 6 * encoder, 2 * 4 * encoder)


@pytest.mark.parametrize("local", [{}, {"epochs": None, "steps": 5}, {"epochs": 2, "batch_size": 3}])
@pytest.mark.parametrize("client", ["perfedavg", "perfedavg_hf", "ditto", "moon", "moon_turbosvm", "fedprox"])
def test_the_idle_count_what_they_would_process(make_experiment, client, local):
    """As much as where nobody is idle, and it all is counted as it happens."""
    strategy = replace(fedumf(1.0), client=option("strategy/client", client))
    counted = []
    for clients_per_round in (1, 6):
        experiment = make_experiment(
            network=mlp, strategy=strategy, clients_per_round=clients_per_round, rounds=2, local=local
        )
        totals = advanced(Simulation(experiment), 1).totals
        counted.append((totals.client_samples, totals.forward_samples))
    assert counted[0] == counted[1]
