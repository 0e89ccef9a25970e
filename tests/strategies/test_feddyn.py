"""FedDyn: worked numbers, networks against a naive server, its limit without a pull."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.evaluation import evaluator
from fedrun.execution.aggregator import Aggregator
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.inference import evaluate
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..helpers.naive_strategies import NaiveFedDyn
from ..helpers.quadratic_clients import UNIFORM, Quadratics, start
from ..helpers.small_networks import COHORT, NETWORKS, assert_as_naive, mlp

SERVER = option("strategy/server", "feddyn")


def feddyn(alpha: float) -> Strategy:
    return Strategy(client=option("strategy/client", "feddyn", alpha=alpha), server=SERVER)


def test_two_rounds():
    federation = Quadratics(feddyn(0.3).client, SERVER, ((1, 0), (1, 4)), (1, 3), lr=0.5, steps=2)
    state = federation.round(start(SERVER, 1.0))
    assert [federation.states[k]["drift"].item() for k in (0, 1)] == pytest.approx([-0.6, 2.1], abs=1e-6)
    assert state.model.item() == pytest.approx(2.5, abs=1e-6)
    state = federation.round(state, 1)
    assert [federation.states[k]["drift"].item() for k in (0, 1)] == pytest.approx([-1.884, 2.856], abs=1e-6)
    assert state.model.item() == pytest.approx(2.722, abs=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(
    "local", [{"epochs": 2}, {"lr_decay": 0.5, "weight_decay": 0.1, "max_gradient_norm": 0.3, "momentum": 0.5}]
)
def test_networks(make_experiment, network, local):
    assert_as_naive(make_experiment, network, partial(NaiveFedDyn, alpha=0.3), local=local, strategy=feddyn(0.3))


def test_without_a_pull_the_server_adds_all_past_displacements(make_experiment):
    """α = 0: x ← mean_S y_k + (1/N) Σ of all displacements so far, with plain SGD's y_k."""
    experiment = make_experiment(network=mlp, strategy=feddyn(0.0), clients_per_round=COHORT)
    simulation = Simulation(experiment)
    plain = Simulation(replace(experiment, strategy=replace(feddyn(0.0), client=option("strategy/client", "sgd"))))
    average = Simulation(
        replace(experiment, strategy=Strategy(client=option("strategy/client", "sgd"), server=UNIFORM))
    )
    state, other, linear_update = simulation.initial(), plain.initial(), 0.0
    for _ in range(3):
        mean = average.advance(replace(state, client_states=average.initial().client_states))[0].server.model
        linear_update = linear_update + COHORT / 6 * (mean - state.server.model)
        state, other = simulation.advance(state)[0], plain.advance(other)[0]
        torch.testing.assert_close(state.server.model, mean + linear_update, rtol=1e-5, atol=1e-6)
        assert torch.equal(state.server.model, other.server.model)


def test_a_server_that_forgets_the_drift_is_refused():
    with pytest.raises(
        InputError,
        match="client=feddyn needs 'drift' from the server.*server=fedavg neither sends nor maintains",
    ):
        build_experiment(compose(["strategy=feddyn", "strategy/server=fedavg"]).config)
    turbo = ["strategy=turbosvm", "strategy/client=feddyn", "strategy/server@strategy.server.base=feddyn"]
    build_experiment(compose(turbo).config)


@pytest.mark.parametrize("name", ["feddyn", "feddc", "fedumf_feddc", "fedavg", "fedadam", "median"])
def test_the_means_of_what_clients_have_sent(make_experiment, name, monkeypatch):
    """The models that are tested beside the global one, against those that the clients send."""
    kept = build_experiment(compose([f"strategy={name}", "evaluation.client_means=true"]).config)
    experiment = make_experiment(network=mlp, strategy=kept.strategy, clients_per_round=3)
    simulation = Simulation(replace(experiment, evaluation=kept.evaluation))
    state, sent, tested = simulation.initial(), {}, []
    last, weighted = dict.fromkeys(range(6), state.server.model), name in ("fedavg", "fedadam", "median")

    def noting(self, visit, *arguments):
        sent[visit.client] = visit.uploads["model"].clone()
        added(self, visit, *arguments)

    added = Aggregator.add
    monkeypatch.setattr(Aggregator, "add", noting)

    def watched(network, *arguments):
        tested.append(network.vector.clone())
        return evaluate(network, *arguments)

    monkeypatch.setattr(evaluator, "evaluate", watched)
    for _ in range(3):
        sent.clear()
        state, _ = simulation.advance(state)
        last |= sent
        tested.clear()
        found = simulation.test(state)
        weights = torch.tensor([float(simulation.federation.train.sizes[k]) if weighted else 1.0 for k in sent])
        mean = weights / weights.sum() @ torch.stack(list(sent.values()))
        torch.testing.assert_close(tested[1], mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(tested[2], torch.stack(list(last.values())).mean(0), rtol=1e-4, atol=1e-5)
        assert {"test/accuracy_of_participants", "test/accuracy_of_all"} <= found.keys()


@pytest.mark.parametrize("choice", ["strategy=ditto", "strategy=ifca", "strategy=fednova", "strategy=solo"])
def test_means_of_models_are_refused_where_there_are_none(choice):
    with pytest.raises(InputError, match=r"evaluation\.client_means=true: allowed if clients send models"):
        build_experiment(compose([choice, "evaluation.client_means=true"]).config)
