"""The round loop: a pure function of the state, and what it counts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.data.federation import ClientIndices
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.experiment.participation.base import select
from fedrun.experiment.state import State, Totals
from fedrun.experiment.strategy import Strategy
from fedrun.models.inference import evaluate, per_client
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.system.errors import InputError

from ..helpers.small_networks import advanced, batch_norm, logistic

SIZES = (3, 12, 8, 5, 20, 12)


@config_class
class Shaken(FedAvg):
    """A user's server that adds noise from PyTorch's global generator."""

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        after, metrics = super().aggregate(state, update, round)
        return replace(after, model=after.model + torch.randn(len(after.model))), metrics


@cache
def strategy(name: str) -> Strategy:
    return build_experiment(compose([f"strategy={name}"]).config).strategy


def tensors(state: State) -> list[torch.Tensor]:
    """Everything a state holds."""
    client_states = [
        state.client_states.held[client][name]
        for client in sorted(state.client_states.held)
        for name in sorted(state.client_states.held[client])
    ]
    kept = {**state.server.slots, **state.server.transforms}
    return [state.server.model, *(kept[name] for name in sorted(kept)), *client_states]


def same(state: State, other: State) -> bool:
    pairs = zip(tensors(state), tensors(other), strict=True)
    return (state.round, state.totals) == (other.round, other.totals) and all(torch.equal(a, b) for a, b in pairs)


def without_times(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


def test_random_numbers_of_a_servers_own_rule_are_those_of_the_round(make_experiment):
    """Both executors give the same models, though their clients leave the global generator in different states."""
    shaken = replace(strategy("fedavg"), server=Shaken(weighting="samples"))
    first, second = (
        advanced(Simulation(make_experiment(network=logistic, strategy=shaken, hardware={"executor": executor})), 2)
        for executor in ("in_process", "vectorized")
    )
    torch.testing.assert_close(first.server.model, second.server.model, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedadam", "turbosvm"])
def test_a_round_is_a_pure_function_of_the_state(make_experiment, name, executor):
    experiment = make_experiment(network=logistic, strategy=strategy(name), hardware={"executor": executor})
    simulation = Simulation(experiment)
    state = advanced(simulation, 2)
    before = [tensor.clone() for tensor in tensors(state)]
    once, metrics = simulation.advance(state)
    simulation.test(once)
    advanced(simulation, 1)  # something else in between
    torch.rand(5)
    again, metrics_again = simulation.advance(state)
    assert same(once, again)
    assert without_times(metrics) == without_times(metrics_again)
    assert state.round == 2
    assert all(torch.equal(*pair) for pair in zip(before, tensors(state), strict=True))
    assert same(advanced(Simulation(experiment), 3), once)  # another simulation of the same experiment
    assert not torch.equal(once.server.model, state.server.model)


def test_a_pure_round_with_buffers(make_experiment):
    simulation = Simulation(make_experiment(network=batch_norm, strategy=strategy("scaffold")))
    state = advanced(simulation, 1)
    assert same(simulation.advance(state)[0], simulation.advance(state)[0])


def test_the_initial_state_is_untouched(make_experiment):
    simulation = Simulation(make_experiment(network=batch_norm))
    first = simulation.initial()
    model = first.server.model.clone()
    advanced(simulation, 2)
    simulation.test(first)
    assert torch.equal(first.server.model, model)
    assert same(simulation.initial(), first)
    assert (first.round, first.totals, dict(first.client_states.held)) == (0, Totals(), {})
    first.server.model.zero_()  # one initial state is not another's memory
    assert torch.equal(simulation.initial().server.model, model)


def test_a_seed_decides_and_zero_is_a_seed(make_experiment):
    models, initial = {}, {}
    for seed in (0, 1):
        for attempt in range(2):
            torch.rand(attempt)  # the global generator's position does not matter
            simulation = Simulation(make_experiment(network=logistic, seed=seed))
            initial[seed, attempt] = simulation.initial().server.model
            models[seed, attempt] = advanced(simulation, 2).server.model
    assert torch.equal(models[0, 0], models[0, 1])
    assert torch.equal(models[1, 0], models[1, 1])
    assert not torch.equal(initial[0, 0], initial[1, 0])
    assert not torch.equal(models[0, 0], models[1, 0])


def test_building_a_simulation_leaves_the_global_generator_alone(make_experiment):
    torch.manual_seed(12)
    expected = torch.rand(3)
    torch.manual_seed(12)
    Simulation(make_experiment(network=logistic))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("clients_per_round", "sizes", "size"),
    [(0.1, (2,) * 100, 10), (0.5, SIZES, 3), (0.4, SIZES, 3), (1.0, SIZES, 6), (1, SIZES, 1), (0.01, SIZES, 1)],
)
def test_cohort_sizes(make_experiment, clients_per_round, sizes, size):
    one_by_one = {"executor": "in_process"}
    experiment = make_experiment(
        network=logistic, sizes=sizes, clients_per_round=clients_per_round, hardware=one_by_one
    )
    simulation = Simulation(experiment)
    assert simulation.phase(simulation.initial()).cohort_size == size
    told: list[tuple[int, int]] = []
    simulation.advance(simulation.initial(), lambda done, cohort: told.append((done, cohort)))
    assert told == [(done, size) for done in range(1, size + 1)]


def test_a_cohort_larger_than_the_federation_is_refused(make_experiment):
    with pytest.raises(InputError, match=r"clients_per_round=7: the federation has 6 clients"):
        Simulation(make_experiment(network=logistic, clients_per_round=7))


# --- costs -----------------------------------------------------------------------------------------------------------

P = 51
"""Parameters of the logistic regression."""


def test_clients_of_feddisco_report_their_labels_once(make_experiment):
    """Six clients, three classes, before the first round."""
    state = Simulation(make_experiment(network=logistic, strategy=strategy("feddisco"))).initial()
    assert (state.totals.params_up, state.totals.bytes_up) == (6 * 3, 4 * 6 * 3)
    pooled = replace(make_experiment().population, pooled=True)
    state = Simulation(make_experiment(network=logistic, strategy=strategy("feddisco"), population=pooled)).initial()
    assert (state.totals.params_up, state.totals.bytes_up) == (0, 0)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize(
    ("name", "vectors"),
    [("fedavg", 1), ("fedprox", 1), ("scaffold", 2), ("fedadam", 1), ("turbosvm", 1)],
)
def test_costs_of_three_rounds_of_two_clients(make_experiment, name, vectors, executor):
    """P numbers down and P up for each client and round; SCAFFOLD's control variates double both."""
    experiment = make_experiment(
        network=logistic,
        strategy=strategy(name),
        local={"epochs": 2},
        clients_per_round=2,
        hardware={"executor": executor},
    )
    state = advanced(Simulation(experiment), 3)
    participants = [client for t in range(3) for client in select(experiment.seed, t, 6, 2).tolist()]
    assert state.totals == Totals(
        params_up=3 * 2 * vectors * P,
        bytes_up=4 * 3 * 2 * vectors * P,
        params_down=3 * 2 * vectors * P,
        bytes_down=4 * 3 * 2 * vectors * P,
        client_samples=2 * sum(SIZES[client] for client in participants),
    )


def test_buffers_count_where_they_are_averaged(make_experiment):
    """72 parameters and 6 buffers; SCAFFOLD's control variate has no buffers."""
    plain = make_experiment(network=batch_norm, clients_per_round=6)
    assert advanced(Simulation(plain), 1).totals == Totals(6 * 78, 6 * 78, 24 * 78, 24 * 78, sum(SIZES))
    scaffold = replace(plain, strategy=strategy("scaffold"))
    assert advanced(Simulation(scaffold), 1).totals == Totals(6 * 150, 6 * 150, 24 * 150, 24 * 150, sum(SIZES))


@pytest.mark.parametrize(
    ("local", "samples"),
    [
        # sizes 3, 12, 8, 5, 20, 12 and B = 4; 2 steps: 3 + 3, 8, 8, 4 + 1, 8, 8
        ({"epochs": None, "steps": 2}, 43),
        # 4 steps: 4 * 3, 4 + 4 + 4 + 4, 8 + 8, 5 + 5, 16, 4 + 4 + 4 + 4
        ({"epochs": None, "steps": 4}, 86),
        ({"epochs": None, "steps": 3, "batch_size": None}, 180),
        ({"epochs": 3}, 180),
    ],
)
def test_client_samples(make_experiment, local, samples):
    experiment = make_experiment(network=logistic, local=local, clients_per_round=6)
    assert advanced(Simulation(experiment), 1).totals.client_samples == samples


# --- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_a_round(make_experiment):
    simulation = Simulation(make_experiment(network=logistic, strategy=strategy("turbosvm")))
    _, metrics = simulation.advance(simulation.initial())
    assert {"train/loss", "train/accuracy", "clients/excluded", "time/round_s", "time/server_s"} <= set(metrics)
    assert {"server/support_vectors", "server/support_vectors/0", "server/svm_penalty"} <= set(metrics)
    assert metrics["clients/excluded"] == 0
    assert 0 <= metrics["time/server_s"] <= metrics["time/round_s"]
    assert all(isinstance(value, float) for value in metrics.values())


def test_training_learns(make_experiment):
    simulation = Simulation(make_experiment(network=logistic, local={"lr": 0.5, "epochs": 5}, clients_per_round=1.0))
    before, after = simulation.test(simulation.initial()), simulation.test(advanced(simulation, 8))
    assert after["test/accuracy"] > 0.9 > before["test/accuracy"]
    assert after["test/loss"] < before["test/loss"]


def test_testing_against_an_ordinary_network_in_evaluation_mode(make_experiment):
    simulation = Simulation(make_experiment(network=batch_norm))
    state = advanced(simulation, 2)
    network = batch_norm(simulation.dataset.spec)
    network.load_state_dict(simulation.network.layout.views(state.server.model), strict=False)
    with torch.no_grad():
        logits = network.eval()(simulation.dataset.inputs[60:].float() / 255)
    targets = simulation.dataset.targets[60:]
    tested = simulation.test(state)
    assert tested["test/loss"] == pytest.approx(nn.functional.cross_entropy(logits, targets).item(), rel=1e-5)
    assert tested["test/accuracy"] == pytest.approx((logits.argmax(1) == targets).float().mean().item())


def test_evaluation_does_not_depend_on_its_batches_and_moves_nothing(make_experiment):
    simulation = Simulation(make_experiment(network=batch_norm))
    state = advanced(simulation, 1)
    simulation.network.load(state.server.model)
    indices = torch.tensor([61, 3, 3, 80, 0, 42, 17])
    whole = evaluate(simulation.network, simulation.phase(state).samples, indices, 100)
    parts = evaluate(simulation.network, simulation.phase(state).samples, indices, 2)
    torch.testing.assert_close(parts.losses, whole.losses, rtol=1e-5, atol=1e-6)
    assert torch.equal(parts.predictions, whole.predictions)
    assert torch.equal(whole.targets, simulation.dataset.targets[indices])
    assert torch.equal(simulation.network.vector, state.server.model)


def test_results_per_client(make_experiment):
    simulation = Simulation(make_experiment(network=logistic))
    clients = ClientIndices(torch.tensor([5, 6, 7, 50, 8]), torch.tensor([0, 3, 3, 5]))  # the second holds nothing
    results = simulation.evaluator(simulation.initial()).results(simulation.initial(), clients.samples)
    losses, accuracies = per_client(results, clients)
    assert losses[0].item() == pytest.approx(results.losses[:3].mean().item())
    assert losses[2].item() == pytest.approx(results.losses[3:].mean().item())
    hits = (results.predictions == results.targets).double()
    assert accuracies[0].item() == pytest.approx(hits[:3].mean().item())
    assert accuracies[2].item() == pytest.approx(hits[3:].mean().item())
    assert torch.isnan(losses[1])
    assert torch.isnan(accuracies[1])
    assert results.metrics(3)["loss"] == pytest.approx(results.losses.mean().item())


def test_repaired_models_stay_finite(make_experiment):
    """A rate of 1e30 throws every client out of the numbers; the published guard puts 1e-5 in their place."""
    local = {"lr": 1e30, "epochs": 3, "repair_nonfinite": True}
    experiment: Experiment = make_experiment(network=logistic, local=local)
    simulation = Simulation(experiment)
    state, metrics = simulation.advance(simulation.initial())
    assert torch.isfinite(state.server.model).all()
    assert metrics["clients/excluded"] == 0


def test_a_repair_leaves_the_state_before_as_it_is(make_experiment):
    """Of several models, one that no client chooses is not repaired: its loss is not a number."""
    local = {"lr": 0.1, "repair_nonfinite": True}
    simulation = Simulation(make_experiment(network=logistic, local=local, strategy=strategy("ifca")))
    state = simulation.initial()
    diverged = state.models[1].model.clone()
    diverged[0] = torch.nan
    state = replace(state, models=(state.models[0], replace(state.models[1], model=diverged), *state.models[2:]))
    after, _ = simulation.advance(state)
    assert torch.isnan(diverged[0]) and torch.isfinite(after.models[0].model).all()


class Unchanged(FedAvg):
    """Its next state is the state before."""

    def aggregate(self, state, update, round):
        return state, {}


def test_a_repair_copies_a_model_that_the_server_has_not_changed(make_experiment):
    server = strategy("fedavg").server
    same = replace(strategy("fedavg"), server=Unchanged(weighting=server.weighting))
    simulation = Simulation(make_experiment(network=logistic, local={"repair_nonfinite": True}, strategy=same))
    state = simulation.initial()
    state.server.model[-1] = torch.inf
    after, _ = simulation.advance(state)
    assert torch.isinf(state.server.model[-1]) and torch.isfinite(after.server.model).all()
