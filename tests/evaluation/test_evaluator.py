"""Metrics over clients: worked numbers, clients without tests, local tuning, personal models, clients.parquet."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace

import pyarrow.parquet
import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Spec, Symbols
from fedrun.data.population import Population
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.data.tasks.regression import Regression
from fedrun.data.tasks.symbols import IGNORED, LanguageModelling
from fedrun.evaluation import evaluator
from fedrun.evaluation.client_results import ClientResults, Metrics
from fedrun.experiment.appeal.base import OwnResults, Thresholds
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.inference import evaluate
from fedrun.runs.client_table import client_table, save_clients
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import ServerState
from fedrun.system.randomness import address, generator

from ..conftest import small_images
from ..helpers.appeal import TESTED, constant, warmup
from ..helpers.naive_averaging import NaiveClients
from ..helpers.small_networks import NETWORKS, advanced, measured, mlp, network_of
from ..helpers.strategies import SOLO

NAN = float("nan")


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def judged(
    loss: torch.Tensor, rho: torch.Tensor, accuracy: torch.Tensor, solo: torch.Tensor | None, *tests: int
) -> tuple[ClientResults, Metrics]:
    results, thresholds = OwnResults(loss + 5, loss, accuracy), Thresholds(rho + 9, rho, solo)
    counts = torch.tensor(tests or [1] * len(loss))
    found = ClientResults.of(results, thresholds, "test", CLASSIFICATION, counts)
    return found, found.metrics(CLASSIFICATION, counts)


def test_gm_appeal_is_strict():
    """(0.5, 1.2, 0.9) below (0.6, 1.0, 0.9): 1/3."""
    found, metrics = judged(of(0.5, 1.2, 0.9), of(0.6, 1.0, 0.9), of(0.5, 0.5, 0.5), None)
    assert found.appeal is not None and found.appeal.tolist() == [True, False, False]
    assert metrics["gm_appeal"] == pytest.approx(1 / 3)


def test_the_preferred_model_is_chosen_by_loss():
    """The first client's own model would be better, the third's worse: 0.2, 0.3, 0.1 are counted, not the maxima."""
    _, metrics = judged(of(0.5, 1.2, 0.9), of(0.6, 1.0, 0.9), of(0.2, 0.9, 0.8), of(0.7, 0.3, 0.1))
    assert metrics["preferred_accuracy"] == pytest.approx((0.2 + 0.3 + 0.1) / 3)


def test_clients_without_tests_are_left_out_and_counted():
    _, metrics = judged(of(0.5, NAN, 0.9), of(0.6, NAN, 0.9), of(0.5, NAN, 1.0), of(0.25, NAN, 0.5), 2, 0, 6)
    assert metrics == {
        "loss_mean": pytest.approx(0.7),
        "accuracy_mean": 0.75,
        "accuracy_std": 0.25,
        "accuracy_worst_tenth": 0.5,
        "accuracy_weighted": pytest.approx(0.875),  # (2 · 0.5 + 6 · 1) / 8
        "untested": 1.0,
        "gm_appeal": 0.5,
        "preferred_accuracy": 0.5,
    }


def test_how_fair_accuracies_are():
    """0, 0.1, .., 1: of eleven clients the worst tenth are 0 and 0.1; the variance is (11² - 1) / 12 / 100."""
    accuracies = of(*(number / 10 for number in (7, 0, 4, 10, 1, 9, 2, 8, 3, 6, 5)))
    results, tests = OwnResults(accuracies, accuracies, accuracies), torch.ones(11, dtype=torch.int64)
    found = ClientResults.of(results, None, "test", CLASSIFICATION, tests).metrics(CLASSIFICATION, tests)
    assert found["accuracy_worst_tenth"] == pytest.approx(0.05)
    assert found["accuracy_std"] == pytest.approx(0.1**0.5)


def test_the_worst_tenth_of_errors_is_the_highest() -> None:
    errors, tests, task = of(3.0, 9.0, 1.0, NAN), torch.tensor([1, 2, 1, 0]), Regression()
    found = ClientResults.of(OwnResults(errors, errors, errors), None, "test", task, tests).metrics(task, tests)
    mean, variance = 13 / 3, 104 / 9
    assert found == pytest.approx(
        {
            "loss_mean": mean,
            "mae_mean": mean,
            "mae_std": variance**0.5,
            "mae_worst_tenth": 9,
            "mae_weighted": 5.5,  # (3 + 2 · 9 + 1) / 4
            "untested": 1,
        }
    )


def test_a_diverged_regression_is_tested_and_has_the_worst_error() -> None:
    """Its error is no number, but the client has test samples: leaving it out would flatter the mean."""
    errors, tests, task = of(3.0, NAN), torch.tensor([1, 1]), Regression()
    found = ClientResults.of(OwnResults(errors, errors, errors), None, "test", task, tests)
    assert found.score.tolist() == [3.0, math.inf]
    metrics = found.metrics(task, tests)
    assert (metrics["mae_mean"], metrics["untested"]) == (math.inf, 0.0)


def test_a_model_that_has_diverged_appeals_to_nobody():
    """The third client has test samples, so it counts: 1/3, and its loss is no number to leave out of a mean."""
    _, metrics = judged(of(0.5, 2.0, NAN), of(1.0, 1.0, 1.0), of(0.5, 0.5, 0.1), None)
    assert metrics["gm_appeal"] == pytest.approx(1 / 3)
    assert metrics["loss_mean"] == float("inf")


def test_a_model_that_has_diverged_counts_without_thresholds():
    """The second client's loss is infinite, though not known; the third has no test sample."""
    results, tests = OwnResults(of(NAN, NAN, NAN), of(0.5, NAN, NAN), of(1.0, 0.0, NAN)), torch.tensor([1, 1, 0])
    found = ClientResults.of(results, None, "test", CLASSIFICATION, tests).metrics(CLASSIFICATION, tests)
    assert found["loss_mean"] == float("inf")
    assert (found["accuracy_mean"], found["untested"]) == (0.5, 1.0)


def symbols(spec):
    return nn.Sequential(OrderedDict(encoder=nn.Embedding(3, 4), head=nn.Linear(4, spec.classes)))


def test_a_client_whose_test_texts_predict_nothing_is_untested(make_experiment, tmp_path):
    """Two of three clients have texts of one symbol, which have no next one. Their losses are not those of a diverged
    model.
    """
    inputs = torch.arange(60).remainder(3).view(20, 3).to(torch.uint8)
    targets = inputs.roll(-1, 1).to(torch.int64)
    population = replace(TESTED, unseen_clients=0)
    images = make_experiment(sizes=(4, 4, 4), dataset=small_images(12, 8), network=mlp, population=population)
    divided = Simulation(images).federation
    for client in (0, 1):
        targets[torch.cat([divided.train[client], divided.client_test[client]])] = IGNORED
    spec = Spec((3,), 3, vocabulary=3, task=LanguageModelling())
    dataset = replace(small_images(12, 8), spec=spec, encoding=Symbols(), inputs=inputs, targets=targets)
    made = make_experiment(sizes=(4, 4, 4), dataset=dataset, network=symbols, population=population, targets=())
    simulation = Simulation(made)
    state = simulation.initial()
    metrics, results = simulation.test(state), simulation.evaluator(state).clients(state)["clients"][""]
    assert metrics["clients/untested"] == 2
    assert metrics["clients/loss_mean"] == pytest.approx(results.loss[2].item())
    assert metrics["clients/token_accuracy_mean"] == results.score[2].item()
    assert [row["loss"] for row in rows_of(simulation, state, tmp_path)[:2]] == [None, None]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("lr", [None, 0.02])
def test_local_tuning(make_experiment, network, lr):
    """Every client, seen or not, makes three steps on the model as it is; the metrics are those of the result.

    The rate is that of the last round that was made, 0.3 in the first and 0.15 in the second, or ``tuning_lr``.
    """
    build = NETWORKS[network]
    made = make_experiment(
        network=build,
        population=TESTED,
        clients_per_round=2,
        appeal=warmup(steps=2),
        local={"lr": 0.3, "lr_decay": 0.5},
    )
    simulation = Simulation(replace(made, evaluation=replace(made.evaluation, tuning_steps=3, tuning_lr=lr)))
    state = advanced(simulation, 2)
    metrics, unseen = simulation.test(state), simulation.federation.unseen
    assert unseen is not None
    for name, train, test in (
        ("clients", simulation.federation.train, simulation.federation.client_test),
        ("unseen", unseen.train, unseen.test),
    ):
        losses, accuracies, appeals = [], [], []
        for client in range(len(train)):
            start = build(simulation.dataset.spec)
            start.load_state_dict(simulation.network.layout.views(state.server.model.clone()), strict=False)
            own = train[client]
            inputs, labels = simulation.dataset.inputs[own].float() / 255, simulation.dataset.targets[own]
            order = generator(address(0, f"alone/{name}", 2), "batches", 0, client)
            clients = NaiveClients(lr=0.15 if lr is None else lr, epochs=None, steps=3)
            tuned, _ = clients.train(start, inputs, labels, order, 0)
            loss, accuracy = measured(tuned, simulation, test[client])
            losses.append(loss)
            accuracies.append(accuracy)
            appeals.append(loss < simulation.thresholds[name].test[client].item())
        assert metrics[f"{name}/tuned_loss_mean"] == pytest.approx(sum(losses) / len(train), rel=1e-4)
        assert metrics[f"{name}/tuned_accuracy_mean"] == pytest.approx(sum(accuracies) / len(train))
        assert metrics[f"{name}/tuned_gm_appeal"] == pytest.approx(sum(appeals) / len(train))
    assert metrics["clients/tuned_loss_mean"] != metrics["clients/loss_mean"]


@pytest.mark.parametrize(("strategy", "rounds", "rate"), [("fedavg", 0, 0.4), ("fedavg", 2, 0.2), ("fedbabu", 2, 0.2)])
def test_tuning_after_the_last_round_of_a_cosine(make_experiment, strategy, rounds, rate):
    """The rates of two rounds are 0.4 (1 + cos 0) / 2 = 0.4 and 0.4 (1 + cos π/2) / 2 = 0.2; a third would have 0."""
    made = make_experiment(
        network=mlp,
        population=TESTED,
        clients_per_round=2,
        rounds=2,
        strategy=build_experiment(compose([f"strategy={strategy}"])).strategy,
        local={"lr": 0.4, "lr_cosine_rounds": 2},
    )
    metrics = []
    for lr in (None, rate):
        simulation = Simulation(replace(made, evaluation=replace(made.evaluation, tuning_steps=2, tuning_lr=lr)))
        metrics.append(simulation.test(advanced(simulation, rounds))["clients/tuned_loss_mean"])
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize("part", ["model", "head"])
def test_local_tuning_by_epochs(make_experiment, part):
    """Two epochs at another rate, of the whole network or of its head; weighted by test samples, too."""
    made = make_experiment(network=mlp, population=TESTED, clients_per_round=2)
    how = replace(made.evaluation, tuning_epochs=2, tuning_part=part, tuning_lr=0.3)
    simulation = Simulation(replace(made, evaluation=how))
    state, _ = simulation.advance(simulation.initial())
    before, metrics = state.server.model.clone(), simulation.test(state)
    accuracies, sizes, train = [], [], simulation.federation.train
    for client in range(len(train)):
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(before.clone()))
        x, y = simulation.dataset.inputs[train[client]].float() / 255, simulation.dataset.targets[train[client]]
        order = generator(address(0, "alone/clients", 1), "batches", 0, client)
        optimizer = torch.optim.SGD((network if part == "model" else network.head).parameters(), 0.3)
        for _ in range(2):
            for batch in torch.randperm(len(y), generator=order).split(4):
                network.zero_grad()
                torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
                optimizer.step()
        accuracies.append(measured(network, simulation, simulation.federation.client_test[client])[1])
        sizes.append(len(simulation.federation.client_test[client]))
    weighted = sum(size * accuracy for size, accuracy in zip(sizes, accuracies, strict=True)) / sum(sizes)
    assert metrics["clients/tuned_accuracy_mean"] == pytest.approx(sum(accuracies) / len(train))
    assert metrics["clients/tuned_accuracy_weighted"] == pytest.approx(weighted)
    common = network_of(simulation, mlp)
    common.load_state_dict(simulation.network.layout.views(before.clone()))
    hits = [n * measured(common, simulation, simulation.federation.client_test[k])[1] for k, n in enumerate(sizes)]
    assert metrics["clients/accuracy_weighted"] == pytest.approx(sum(hits) / sum(sizes))
    assert torch.equal(state.server.model, before)


def test_the_global_model_beside_own_ones(make_experiment):
    ditto = Strategy(client=option("strategy/client", "ditto"), server=option("strategy/server", "fedavg"))
    simulations = [
        Simulation(make_experiment(network=mlp, population=TESTED, **changes)) for changes in ({"strategy": ditto}, {})
    ]
    personal, common = (simulation.test(simulation.advance(simulation.initial())[0]) for simulation in simulations)
    names = [name.removeprefix("clients/global_") for name in personal if name.startswith("clients/global_")]
    assert {"accuracy_mean", "accuracy_std", "accuracy_worst_tenth", "accuracy_weighted"} <= set(names)
    for name in names:  # Ditto's global model is FedAvg's
        assert personal[f"clients/global_{name}"] == pytest.approx(common[f"clients/{name}"], rel=1e-5)
    assert personal["clients/loss_mean"] != pytest.approx(common["clients/loss_mean"], rel=1e-5)


def test_the_global_models_appeal_by_training_losses(make_experiment):
    """Ditto's global model is FedAvg's, so it appeals to the same clients. One loss in the middle separates them."""
    ditto = Strategy(client=option("strategy/client", "ditto"), server=option("strategy/server", "fedavg"))

    def metrics(rho: float, **changes):
        made = make_experiment(network=mlp, population=TESTED, appeal=constant(rho), **changes)
        simulation = Simulation(made)
        state, _ = simulation.advance(simulation.initial())
        return simulation.test(state), simulation.evaluator(state).on_training(state)[0]

    _, losses = metrics(1.0)
    rho = losses.median().item() + 1e-4
    (common, _), (personal, _) = metrics(rho), metrics(rho, strategy=ditto)
    assert 0 < common["clients/gm_appeal"] < 1
    assert personal["clients/global_gm_appeal"] == common["clients/gm_appeal"]
    assert personal["clients/global_loss_mean"] == pytest.approx(common["clients/loss_mean"], rel=1e-5)


def test_the_rows_have_the_results_of_tuned_and_global_models(make_experiment, tmp_path):
    """Their means over clients are the run's metrics."""
    population = Population(unseen_clients=1, test_share=0.4, test_of="auto", flipped_share=0, pooled=False, seed=None)
    ditto = build_experiment(compose(["strategy=ditto", "tracking=none"])).strategy
    evaluation = replace(build_experiment(compose(["tracking=none"])).evaluation, tuning_steps=2)
    common = {"network": mlp, "population": population, "evaluation": evaluation, "clients_per_round": 5}
    simulation = Simulation(make_experiment(**common, strategy=ditto))
    state, _ = simulation.advance(simulation.initial())
    metrics, rows = simulation.test(state), rows_of(simulation, state, tmp_path)
    for kind in ("", "global_", "tuned_"):
        accuracies = [row[f"{kind}accuracy"] for row in rows if row["seen"] and row[f"{kind}accuracy"] is not None]
        assert sum(accuracies) / len(accuracies) == pytest.approx(metrics[f"clients/{kind}accuracy_mean"])
        losses = [row[f"{kind}loss"] for row in rows if row["seen"] and row[f"{kind}loss"] is not None]
        assert sum(losses) / len(losses) == pytest.approx(metrics[f"clients/{kind}loss_mean"])
    (unseen,) = [row for row in rows if not row["seen"] and row["client"] != "test"][:1]
    assert unseen["tuned_accuracy"] == pytest.approx(metrics["unseen/tuned_accuracy_mean"])
    assert unseen["global_accuracy"] is None


def rows_of(simulation, state, tmp_path):
    save_clients(client_table(simulation, state), tmp_path / "clients.parquet")
    return pyarrow.parquet.read_table(tmp_path / "clients.parquet").to_pylist()


def test_the_rows_of_all_clients(make_experiment, tmp_path):
    """Six clients of 1, 12, 8, 5, 20 and 12 samples, two of them unseen, half of them flipped; then the test set."""
    population = Population(
        unseen_clients=2, test_share=0.4, test_of="auto", flipped_share=0.5, pooled=False, seed=None
    )
    simulation = Simulation(
        make_experiment(
            network=mlp,
            sizes=(1, 12, 8, 5, 20, 12),
            population=population,
            clients_per_round=2,
            appeal=warmup(5),
            seed=1,
        )
    )
    state, _ = simulation.advance(simulation.initial())
    rows = rows_of(simulation, state, tmp_path)
    federation = simulation.federation
    assert federation.unseen is not None and federation.flipped is not None
    network = mlp(simulation.dataset.spec)
    network.load_state_dict(simulation.network.layout.views(state.server.model.clone()))
    expected = []
    for name, train, test, flipped in (
        ("clients", federation.train, federation.client_test, federation.flipped),
        ("unseen", federation.unseen.train, federation.unseen.test, federation.unseen.flipped),
    ):
        rho = simulation.thresholds[name].test
        for client in range(len(train)):
            tested = len(test[client]) > 0
            loss, accuracy = measured(network, simulation, test[client]) if tested else (None, None)
            expected.append(
                {
                    "client": train.name(client),
                    "samples": len(train[client]),
                    "loss": loss if loss is None else pytest.approx(loss, rel=1e-5),
                    "accuracy": accuracy if accuracy is None else pytest.approx(accuracy),
                    "evaluated_on": "test" if tested else None,
                    "threshold": rho[client].item() if tested else None,
                    "appeal": loss < rho[client].item() if tested else None,
                    "seen": name == "clients",
                    "attacker": False,
                    "flipped": bool(flipped[client]),
                }
            )
    assert rows[:6] == expected
    assert sum(row["flipped"] for row in rows) == 3
    assert sum(row["loss"] is None for row in rows) == 1
    assert rows[6]["samples"] == 30 and rows[6]["threshold"] is None and not rows[6]["seen"]
    metrics = simulation.test(state)
    assert metrics["clients/untested"] + metrics["unseen/untested"] == 1


def test_the_rows_of_clients_with_thresholds_and_without_tests(make_experiment, tmp_path):
    made = make_experiment(network=mlp, clients_per_round=6, appeal=constant(1.0))
    simulation = Simulation(replace(made, evaluation=replace(made.evaluation, train_clients=True)))
    state, _ = simulation.advance(simulation.initial())
    losses, accuracies = simulation.evaluator(state).on_training(state)
    for row, loss, accuracy in zip(rows_of(simulation, state, tmp_path), losses, accuracies, strict=False):
        assert (row["loss"], row["accuracy"]) == pytest.approx((loss.item(), accuracy.item()))
        assert (row["evaluated_on"], row["threshold"], row["appeal"]) == ("train", 1.0, loss.item() < 1.0)


def test_the_rows_of_unseen_clients_with_thresholds_and_without_tests(make_experiment, tmp_path):
    """Their losses are compared on their training samples, and their rows say so."""
    population = replace(TESTED, test_share=0.0)
    simulation = Simulation(make_experiment(network=mlp, population=population, appeal=constant(1.0)))
    state, unseen = simulation.initial(), simulation.federation.unseen
    network = mlp(simulation.dataset.spec)
    network.load_state_dict(simulation.network.layout.views(state.server.model.clone()))
    assert unseen is not None and unseen.test is None
    for client, row in enumerate(rows_of(simulation, state, tmp_path)[len(simulation.federation.train) :][:2]):
        assert row["client"] == unseen.train.name(client)
        loss, _ = measured(network, simulation, unseen.train[client])
        assert (row["loss"], row["accuracy"]) == (pytest.approx(loss, rel=1e-5), None)
        assert (row["evaluated_on"], row["appeal"]) == ("train", loss < 1.0)


def personal(simulation, state):
    """Every client's own network."""
    for client in range(len(simulation.federation.train)):
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(state.client_states.held[client]["private"]))
        yield network


@pytest.mark.parametrize("tests", [0.0, 0.4])
def test_personal_models_are_judged_each_by_itself(make_experiment, tmp_path, tests):
    """On the client's test samples, or where it has none on its training samples; no model is the test set's."""
    population = Population(
        unseen_clients=0, test_share=tests, test_of="auto", flipped_share=0.0, pooled=False, seed=None
    )
    simulation = Simulation(
        make_experiment(network=mlp, strategy=SOLO, population=population, clients_per_round=1.0, appeal=warmup(3))
    )
    state, _ = simulation.advance(simulation.initial())
    federation, rows = simulation.federation, rows_of(simulation, state, tmp_path)
    rho = simulation.thresholds["clients"]
    for client, network in enumerate(personal(simulation, state)):
        own = federation.train[client] if federation.client_test is None else federation.client_test[client]
        loss, _ = measured(network, simulation, own)
        assert rows[client]["loss"] == pytest.approx(loss, rel=1e-5)
        assert rows[client]["appeal"] == (loss < (rho.test if tests else rho.train)[client].item())
    assert (rows[6]["samples"], rows[6]["loss"], rows[6]["accuracy"]) == (30, None, None)


def test_training_results_of_personal_models(make_experiment, tmp_path):
    made = make_experiment(network=mlp, strategy=SOLO, clients_per_round=1.0)
    simulation = Simulation(replace(made, evaluation=replace(made.evaluation, train_clients=True)))
    state, _ = simulation.advance(simulation.initial())
    rows = rows_of(simulation, state, tmp_path)
    for client, network in enumerate(personal(simulation, state)):
        loss, accuracy = measured(network, simulation, simulation.federation.train[client])
        assert (rows[client]["loss"], rows[client]["accuracy"]) == pytest.approx((loss, accuracy), rel=1e-5)


def test_tuned_models_are_judged_by_the_convention_train(make_experiment):
    made = make_experiment(
        network=mlp,
        clients_per_round=2,
        appeal=constant(1.05),
        population=replace(TESTED, unseen_clients=0),
    )
    simulation = Simulation(replace(made, evaluation=replace(made.evaluation, tuning_steps=3)))
    losses = []
    for client in range(6):
        own = simulation.federation.train[client]
        inputs, labels = simulation.dataset.inputs[own].float() / 255, simulation.dataset.targets[own]
        order = generator(address(0, "alone/clients", 0), "batches", 0, client)
        tuned, _ = NaiveClients(epochs=None, steps=3).train(network_of(simulation, mlp), inputs, labels, order, 0)
        losses.append(measured(tuned, simulation, own)[0])
    metrics = simulation.test(simulation.initial())
    assert metrics["clients/tuned_loss_mean"] == pytest.approx(sum(losses) / 6, rel=1e-5)
    assert metrics["clients/tuned_gm_appeal"] == pytest.approx(sum(loss < 1.05 for loss in losses) / 6)


def test_unseen_clients_have_no_model_of_their_own(make_experiment):
    # unseen clients have no model of their own: theirs is the global one, which under solo stays the initial one
    simulation = Simulation(
        make_experiment(
            network=mlp,
            strategy=SOLO,
            population=TESTED,
            clients_per_round=1.0,
        )
    )
    state, _ = simulation.advance(simulation.initial())
    unseen = simulation.federation.unseen
    losses = [measured(network_of(simulation, mlp), simulation, unseen.test[client])[0] for client in range(2)]
    assert simulation.test(state)["unseen/loss_mean"] == pytest.approx(sum(losses) / 2, rel=1e-5)


def networks(simulation, state):
    for each in state.models:
        network = mlp(simulation.dataset.spec)
        network.load_state_dict(simulation.network.layout.views(each.model.clone()))
        yield network


def ifca():
    return build_experiment(compose(["strategy=ifca", "strategy.clustering.clusters=2"]).config).strategy


def test_clients_of_no_cluster_are_served_by_all_models(make_experiment):
    # nobody is assigned yet: the sum of the models' logits serves everybody
    simulation = Simulation(
        make_experiment(
            network=mlp,
            strategy=ifca(),
            population=replace(TESTED, unseen_clients=0),
        )
    )
    state, own, losses = simulation.initial(), simulation.federation.client_test, []
    for client in range(6):
        x, y = simulation.dataset.inputs[own[client]].float() / 255, simulation.dataset.targets[own[client]]
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(sum(n(x) for n in networks(simulation, state)), y).item())
    assert simulation.test(state)["clients/loss_mean"] == pytest.approx(sum(losses) / 6, rel=1e-5)


def test_results_are_kept_of_these_very_models_only(make_experiment):
    # a round in which only the second model was trained
    simulation = Simulation(make_experiment(network=mlp, strategy=ifca()))
    state = simulation.initial()
    first, second = state.models
    later = replace(state, models=(first, ServerState(second.model + 1)))
    before, now = simulation.test(state)["test/loss"], simulation.test(later)["test/loss"]
    assert now == Simulation(simulation.experiment).test(later)["test/loss"] != before


def test_results_on_other_samples_are_others(make_experiment):
    """Tensors that nobody holds may have the same address, one after the other."""
    simulation = Simulation(make_experiment(network=mlp))
    state = simulation.initial()
    for first in (0, 5, 10):
        results = simulation.evaluator(state).results(state, torch.arange(first, first + 3))
        expected = simulation.dataset.targets[first : first + 3]
        assert results.targets.tolist() == expected.tolist()


def test_every_round_is_judged_by_samples_of_its_own(make_experiment, monkeypatch):
    # every round is judged by samples of its own
    made = make_experiment(network=mlp)
    simulation = Simulation(replace(made, evaluation=replace(made.evaluation, adaptive=True, batch_size=8)))
    evaluated = []

    def watched(network, samples, indices, *arguments):
        evaluated.append(indices.tolist())
        return evaluate(network, samples, indices, *arguments)

    monkeypatch.setattr(evaluator, "evaluate", watched)
    state = simulation.initial()
    for round in (1, 2):
        simulation.test(replace(state, round=round), float("inf"))
    order = [torch.randperm(30, generator=generator(0, "screening", round))[:8] + 60 for round in (1, 2)]
    assert evaluated == [indices.tolist() for indices in order] and evaluated[0] != evaluated[1]
