"""Training alone and training in one place: what federated learning lies between."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.population import Population
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError, RunError
from fedrun.system.randomness import generator

from ..helpers.poisoned_samples import poisoned_experiment
from ..helpers.quadratic_clients import FEDAVG, SGD
from ..helpers.small_networks import NETWORKS, advanced, data_of, final_model, mlp, network_of
from ..helpers.strategies import SOLO

CENTRALIZED = Strategy(client=option("strategy/client", "sgd_lasting_momentum"), server=FEDAVG)
POOLED = Population(unseen_clients=0, test_share=0.0, test_of="auto", flipped_share=0.0, pooled=True, seed=None)


def simulated(experiment, rounds):
    simulation = Simulation(experiment)
    return simulation, advanced(simulation, rounds)


def plain_sgd(simulation, build, samples, batches_of, epochs, lr, momentum):
    """A network trained by one persistent optimizer on these samples."""
    inputs, labels = samples
    network = network_of(simulation, build).train()
    optimizer = torch.optim.SGD(network.parameters(), lr, momentum)
    for epoch in range(epochs):
        for batch in batches_of(epoch, len(labels)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            optimizer.step()
    return network


def order_of(client):
    return lambda epoch, count: torch.randperm(count, generator=generator(0, "batches", epoch, client)).split(4)


@pytest.mark.parametrize("network", NETWORKS)
def test_centralized_is_one_run_of_sgd_over_all_samples(make_experiment, network):
    """Three rounds of one epoch: momentum goes on from round to round."""
    build = NETWORKS[network]
    simulation, state = simulated(
        make_experiment(network=build, strategy=CENTRALIZED, population=POOLED, local={"momentum": 0.9, "lr": 0.02}), 3
    )
    assert len(simulation.federation.train) == 1 and simulation.phase(simulation.initial()).cohort_size == 1
    (samples,) = data_of(simulation)
    trained = plain_sgd(simulation, build, samples, order_of(0), 3, 0.02, 0.9)
    for name, own in simulation.network.layout.views(state.server.model).items():
        torch.testing.assert_close(own, trained.state_dict()[name], rtol=1e-5, atol=1e-6)
    assert (state.totals.params_up, state.totals.params_down, state.totals.client_samples) == (0, 0, 180)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_solo_is_a_run_of_sgd_for_every_client(make_experiment, executor):
    simulation, state = simulated(
        make_experiment(
            network=mlp,
            strategy=SOLO,
            local={"momentum": 0.9, "lr": 0.02},
            clients_per_round=1.0,
            hardware={"executor": executor},
        ),
        3,
    )
    accuracies, inputs = [], simulation.dataset.inputs[60:].float() / 255
    for client, samples in enumerate(data_of(simulation)):
        trained = plain_sgd(simulation, mlp, samples, order_of(client), 3, 0.02, 0.9)
        for name, own in simulation.network.layout.views(state.client_states.held[client]["private"]).items():
            torch.testing.assert_close(own, trained.state_dict()[name], rtol=1e-5, atol=1e-6)
        right = trained.eval()(inputs).argmax(1) == simulation.dataset.targets[60:]
        accuracies.append(right.double().mean().item())
    assert simulation.test(state)["test/accuracy"] == pytest.approx(sum(accuracies) / 6)
    assert torch.equal(state.server.model, simulation.initial().server.model)
    assert (state.totals.params_up, state.totals.params_down) == (0, 0)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("local", [{"epochs": 2}, {"momentum": 0.9, "lr": 0.02}, {"epochs": None, "steps": 7}])
def test_solo_with_one_client_is_centralized(make_experiment, network, local):
    build = {"network": NETWORKS[network], "local": local, "sizes": (30,), "clients_per_round": 1}
    alone, own = simulated(make_experiment(strategy=SOLO, **build), 3)
    pooled, state = simulated(make_experiment(strategy=CENTRALIZED, population=POOLED, **build), 3)
    assert torch.equal(own.client_states.held[0]["private"], state.server.model)
    assert alone.test(own) == pooled.test(state)


def test_centralized_with_one_batch_is_fedsgd_with_one_client(make_experiment):
    local = {"batch_size": None, "epochs": 1}
    pooled = make_experiment(network=mlp, strategy=CENTRALIZED, population=POOLED, local=local)
    fedsgd = Strategy(client=option("strategy/client", "fedsgd"), server=FEDAVG)
    simulation = Simulation(pooled)
    order = simulation.federation.train[0]
    single = make_experiment(network=mlp, strategy=fedsgd, local=local, sizes=(60,), clients_per_round=1)
    assert sorted(order.tolist()) == sorted(Simulation(single).federation.train[0].tolist())
    torch.testing.assert_close(final_model(pooled, 3), final_model(single, 3), rtol=1e-5, atol=1e-6)


def test_fedavg_with_one_client_is_centralized_without_momentum(make_experiment):
    build = {"network": NETWORKS["batch_norm"], "sizes": (30,), "clients_per_round": 1, "local": {"epochs": 2}}
    central = make_experiment(strategy=CENTRALIZED, population=POOLED, **build)
    single = make_experiment(strategy=Strategy(client=SGD, server=FEDAVG), **build)
    assert torch.equal(final_model(central, 3), final_model(single, 3))
    momentum = {"epochs": 2, "momentum": 0.9}
    forgetful, lasting = (final_model(replace(e, local=replace(e.local, **momentum)), 3) for e in (single, central))
    assert not torch.allclose(forgetful, lasting, atol=1e-3)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_a_client_that_diverges_alone_is_counted_and_keeps_its_last_model(make_experiment, caplog, executor):
    experiment = poisoned_experiment(
        make_experiment, 2, network=mlp, strategy=SOLO, local={"epochs": 2}, hardware={"executor": executor}
    )
    _, state = simulated(experiment, 2)
    assert set(state.client_states.held) == {0, 1, 3}
    assert state.totals.excluded == 2
    assert "round 2: uploads of clients [2] are not finite and are left out" in caplog.text
    assert all(vectors["private"].isfinite().all() for vectors in state.client_states.held.values())
    everybody = poisoned_experiment(make_experiment, 0, 1, 2, 3, network=mlp, strategy=SOLO, local={"epochs": 2})
    with pytest.raises(RunError, match="round 1: no client's upload was finite"):
        simulated(everybody, 1)


@pytest.mark.parametrize("client", ["sgd", "fedper"])
def test_a_server_that_uses_nothing_of_what_clients_send(client):
    with pytest.raises(InputError) as raised:
        build_experiment(compose([f"strategy/client={client}", "strategy/server=solo"]))
    assert str(raised.value) == (
        f"strategy/server=solo uses nothing of what strategy/client={client} sends, and no model would be trained; "
        "allowed: strategy/client=solo, or another server strategy, such as fedavg"
    )


def test_a_refined_head_trains_no_encoder():
    """TurboSVM-FL needs models for its own steps, which change the head only."""
    with pytest.raises(InputError, match=r"^strategy/server=turbosvm uses nothing of what strategy/client=sgd sends, "):
        build_experiment(compose(["strategy=turbosvm", "strategy/server@strategy.server.base=solo"]))


def test_a_client_that_rests_keeps_its_own_model(make_experiment):
    simulation, first = simulated(make_experiment(network=mlp, strategy=SOLO, clients_per_round=3), 1)
    cohort = set(first.client_states.held)
    second, _ = simulation.advance(first)
    for client in cohort - set(simulation.uploads(first).clients.tolist()):
        assert torch.equal(second.client_states.held[client]["private"], first.client_states.held[client]["private"])
    assert len(cohort) == 3


def test_pooled_clients_pool_their_tests(make_experiment):
    population = Population(unseen_clients=0, test_share=0.4, test_of="auto", flipped_share=0.0, pooled=True, seed=None)
    simulation = Simulation(make_experiment(network=mlp, strategy=CENTRALIZED, population=population))
    own = simulation.federation.client_test
    # ⌊0.6 n⌋ of 3, 12, 8, 5, 20, 12 stay: 1, 7, 4, 3, 12, 7; the others, 26, are the test of the one who holds all
    assert own.sizes.tolist() == [26] and own.name(0) == "all"
    state, _ = simulation.advance(simulation.initial())
    metrics = simulation.test(state)
    results = simulation.evaluator(state).results(state, own.samples)
    assert metrics["clients/accuracy_mean"] == pytest.approx(
        (results.predictions == results.targets).double().mean().item()
    )


def test_the_pooled_accuracy_of_personal_models_counts_samples(make_experiment):
    # 2 + 5 + 4 + 2 + 8 + 5 = 26 test samples; the pooled accuracy counts samples, the clients' mean counts clients
    population = Population(
        unseen_clients=0, test_share=0.4, test_of="auto", flipped_share=0.0, pooled=False, seed=None
    )
    strategy = build_experiment(compose(["strategy=solo"]).config).strategy
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, population=population, clients_per_round=1.0)
    )
    state, _ = simulation.advance(simulation.initial())
    own, right = simulation.federation.client_test, []
    for client in range(6):
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(state.client_states.held[client]["private"]))
        predicted = network(simulation.dataset.inputs[own[client]].float() / 255).argmax(1)
        right.append((predicted == simulation.dataset.targets[own[client]]).sum().item())
    metrics = simulation.test(state)
    assert metrics["test/accuracy"] == pytest.approx(sum(right) / 26)
    shares = [count / size for count, size in zip(right, (2, 5, 4, 2, 8, 5), strict=True)]
    assert metrics["clients/accuracy_mean"] == pytest.approx(sum(shares) / 6)
    assert metrics["test/accuracy"] != metrics["clients/accuracy_mean"]
