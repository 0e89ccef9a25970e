"""IFCA, FedSoft and FeSEM against naive rounds on ordinary modules."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import select
from fedrun.simulation.round_runner import RoundResult
from fedrun.simulation.server_step import aggregate
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.system.randomness import generator

from ..conftest import SIZES
from ..helpers.naive_averaging import NaiveClients, weighted_mean
from ..helpers.small_networks import COHORT, NETWORKS, advanced, data_of, mlp

RATE = 0.1


def networks_of(simulation, build) -> list[nn.Module]:
    """Ordinary networks with the initial values of the simulation's models."""
    found = []
    for server in simulation.initial().models:
        network = build(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(server.model.clone()), strict=False)
        found.append(network)
    return found


def assert_same(simulation, state, networks) -> None:
    for server, network in zip(state.models, networks, strict=True):
        for name, view in simulation.network.layout.views(server.model).items():
            torch.testing.assert_close(view, network.state_dict()[name], rtol=1e-5, atol=1e-6)


def trained(clients, network, data, client, index):
    return clients.train(network, *data[client], generator(0, "batches", index, client), index)[0]


def averaged(networks, ends, sizes) -> None:
    """Load into each network the weighted mean of those that were trained for it."""
    for number, network in enumerate(networks):
        if ends[number]:
            network.load_state_dict(weighted_mean(ends[number], sizes[number]), strict=False)


@pytest.mark.parametrize("network", NETWORKS)
def test_ifca(make_experiment, network):
    strategy = build_experiment(compose(["strategy=ifca", "strategy.clustering.clusters=2"]).config).strategy
    simulation = Simulation(make_experiment(network=NETWORKS[network], strategy=strategy, clients_per_round=COHORT))
    naive, data = networks_of(simulation, NETWORKS[network]), data_of(simulation)
    assert not torch.equal(*(one.head.weight for one in naive))  # IFCA starts from different models
    state, size = simulation.initial(), simulation.network.layout.size
    looked = 0
    for index in range(4):
        state, metrics = simulation.advance(state)
        ends, sizes = [[], []], [[], []]
        for client in select(0, index, 6, COHORT).tolist():
            x, y = data[client]
            with torch.no_grad():
                losses = [nn.functional.cross_entropy(one.eval()(x), y).item() for one in naive]
            choice = losses.index(min(losses))
            assert state.membership[client].tolist() == [float(choice == 0), float(choice == 1)]
            ends[choice].append(trained(NaiveClients(), naive[choice], data, client, index))
            sizes[choice].append(float(len(y)))
            looked += 2 * len(y)
        averaged(naive, ends, sizes)
        assert metrics["clusters/trained"] == sum(map(bool, ends))
        assert_same(simulation, state, naive)
    assert state.totals.params_down == 4 * COHORT * 2 * size
    assert state.totals.params_up == 4 * COHORT * size
    assert state.totals.forward_samples == looked


def test_loss_and_score_are_means_over_the_accepted_clients():
    def update(loss, accepted):
        return replace(CohortUpdate.empty(), clients=torch.ones(1), loss=loss, score=loss / 4, sample_weight=accepted)

    # The second model's clients processed 90 samples, of which 30 belong to the clients that were accepted.
    processed = torch.tensor([[0, 10, 0], [1, 90, 0]])
    work = RoundResult((), (), (update(1.0, 10), update(3.0, 30)), None, None, processed)
    assert work.loss == pytest.approx((10 * 1.0 + 30 * 3.0) / 40)
    assert work.score == pytest.approx((10 * 0.25 + 30 * 0.75) / 40)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_fedsoft(make_experiment, executor):
    setting = ["strategy=fedsoft", "strategy.clustering.clusters=2", "strategy.client.strength=0.7"]
    strategy = build_experiment(compose(setting).config).strategy
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, clients_per_round=COHORT, hardware={"executor": executor})
    )
    naive, data = networks_of(simulation, mlp), data_of(simulation)
    state, shares = simulation.initial(), {}
    for index in range(3):
        state, metrics = simulation.advance(state)
        cohort = select(0, index, 6, COHORT).tolist()
        ends, sizes, started = [[], []], [[], []], copy.deepcopy(naive)
        losses = []
        for client in cohort:
            x, y = data[client]
            if index % 2 == 0 or client not in shares:
                with torch.no_grad():
                    each = torch.stack([nn.functional.cross_entropy(n(x), y, reduction="none") for n in started])
                votes = (each[0] <= each[1]).double().mean().item()
                shares[client] = (max(votes, 1e-4), max(1 - votes, 1e-4))
            u = shares[client]
            own = copy.deepcopy(started[0 if u[0] >= u[1] else 1])
            optimizer = torch.optim.SGD(own.parameters(), RATE)
            for batch in torch.randperm(len(y), generator=generator(0, "batches", index, client)).split(4):
                logits = own(x[batch])
                loss = nn.functional.cross_entropy(logits, y[batch])
                losses.append((loss.item(), len(batch)))
                for share, centre in zip(u, started, strict=True):
                    for p, c in zip(own.parameters(), centre.parameters(), strict=True):
                        loss = loss + 0.7 / 2 * share * (p - c.detach()).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            for number in range(2):
                ends[number].append(own)
                sizes[number].append(u[number] * len(y))
        averaged(naive, ends, sizes)
        assert_same(simulation, state, naive)
        # every sample counts once, though every model is averaged into two
        expected = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
        assert metrics["train/loss"] == pytest.approx(expected, rel=1e-5)
    assert state.totals.client_samples == sum(
        len(data[client][1]) for index in range(3) for client in select(0, index, 6, COHORT).tolist()
    )
    assert state.totals.params_down == 3 * COHORT * 2 * simulation.network.layout.size
    assert state.totals.params_up == 3 * COHORT * simulation.network.layout.size


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_fesem(make_experiment, executor):
    setting = ["strategy=fesem", "strategy.clustering.clusters=2", "strategy.client.mu=0.7"]
    strategy = build_experiment(compose(setting).config).strategy
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, clients_per_round=COHORT, hardware={"executor": executor})
    )
    naive, data = networks_of(simulation, mlp), data_of(simulation)
    assert torch.equal(*(one.head.weight for one in naive))
    state, last = simulation.initial(), {}
    for index in range(4):
        state, _ = simulation.advance(state)
        ends, sizes = [[], []], [[], []]
        for client in select(0, index, 6, COHORT).tolist():
            choice = int(state.membership[client].argmax())
            if client in last:
                distances = [
                    sum((p - q).square().sum().item() for p, q in zip(one.parameters(), last[client], strict=True))
                    for one in naive
                ]
                assert choice == distances.index(min(distances))
            own = trained(NaiveClients(mu=0.7), naive[choice], data, client, index)
            last[client] = [p.detach() for p in own.parameters()]
            ends[choice].append(own)
            sizes[choice].append(float(len(data[client][1])))
        averaged(naive, ends, sizes)
        assert_same(simulation, state, naive)


def test_scaffold_within_clusters_follows_each_clusters_clients(make_experiment):
    """With fixed clusters, a cluster is a federation of its own: its control variate is the mean of its clients'."""
    clustering = option("strategy/clustering", "label_distributions", clusters=2)
    overrides = (
        "strategy=fedconcat",
        "strategy/post_training=none",
        "strategy/client=scaffold",
        "strategy/server=scaffold",
    )
    strategy = replace(build_experiment(compose(overrides).config).strategy, clustering=clustering)
    simulation = Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=COHORT))
    state = advanced(simulation, 3)
    zero = torch.zeros(simulation.network.layout.trainable)
    for number, server in enumerate(state.models):
        members = (state.membership[:, number] > 0).nonzero().flatten().tolist()
        own = [state.client_states.held.get(client, {}).get("control", zero) for client in members]
        torch.testing.assert_close(server.slots["control"], sum(own) / len(members), rtol=1e-5, atol=1e-6)


def test_attackers_weigh_the_same_fractions_as_honest_clients(make_experiment):
    """FedSoft: centre s is Σ u_ks n_k y_k / Σ u_ks n_k, where attackers send x_s minus the honest mean displacement."""
    strategy = build_experiment(compose(["strategy=fedsoft", "strategy.clustering.clusters=2"]).config).strategy
    attack = option("attack", "ipm", share=0.3, scale=1.0)
    simulation = Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=6, attack=attack))
    state, attackers = simulation.initial(), simulation.federation.attackers
    assert len(attackers) == 2
    runner = simulation.round_runner(state)
    work = runner.run(state, simulation.uploads(state).clients, lambda done: None)
    sent = {
        result.client: result.uploads["model"].clone()
        for job in work.jobs
        for result in runner.executor.client_results(job)
    }
    after, _ = simulation.advance(state)
    for number, (before, server) in enumerate(zip(state.models, after.models, strict=True)):
        honest = torch.stack([model - before.model for client, model in sent.items() if client not in attackers])
        forged = before.model - honest.mean(0)
        weights = {client: work.membership[client, number] * SIZES[client] for client in sent}
        models = {client: forged if client in attackers else model for client, model in sent.items()}
        expected = sum(weights[client] * models[client] for client in sent) / sum(weights.values())
        torch.testing.assert_close(server.model, expected.float(), rtol=1e-4, atol=1e-6)


@config_class
class Counting(FedAvg):
    """FedAvg with a metric of every cohort, and one of cohorts of some sizes only."""

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        count = len(update.clients)
        some = {"some": float(count)} if count > 2 else {}
        return super().aggregate(state, update, round)[0], {"all": float(count), **some}


@pytest.mark.parametrize("larger", [0, 1])
def test_metrics_of_the_models_that_have_them(make_experiment, larger):
    """Four clients for one model, two for the other: the mean of both is 3, over the model with this metric 4."""
    strategy = build_experiment(compose(["strategy=ifca", "strategy.clustering.clusters=2"]).config).strategy
    strategy = replace(strategy, server=Counting(weighting="samples"))
    simulation = Simulation(make_experiment(network=mlp, strategy=strategy, clients_per_round=6))
    state = simulation.initial()
    result = simulation.round_runner(state).run(state, torch.arange(6), lambda done: None)
    whole = next(update for update in result.updates if len(update.clients))
    clients = {larger: torch.arange(4), 1 - larger: torch.arange(4, 6)}
    updates = tuple(replace(whole, clients=clients[model], mean=dict(whole.mean)) for model in (0, 1))
    context = simulation.round_runner(state).executor.context
    _, metrics = aggregate(simulation.phase(state), state, replace(result, updates=updates), context, sums_only=False)
    assert (metrics["server/all"], metrics["server/some"]) == (3.0, 4.0)
