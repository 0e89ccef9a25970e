"""Executors agree with each other, whatever the strategy, the network and the order of work."""

from __future__ import annotations

import copy
import re
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.options import options
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.execution import vectorized
from fedrun.execution.context import ClientResult, CohortJob, ExecutionContext
from fedrun.execution.executor import Executor
from fedrun.execution.in_process import InProcess
from fedrun.execution.vectorized import Vectorized
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.lora import LoRA
from fedrun.simulation.costs import Costs
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_state import LAST, OPTIMIZER, PRIVATE, ClientStates
from fedrun.strategies.fedavg import FedAvg
from fedrun.strategies.server import CohortUpdate
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError, RunError
from fedrun.system.randomness import generator

from ..benchmarks.train_cohort import train_cohort
from ..conftest import first_executor
from ..helpers.naive_averaging import NaiveClients
from ..helpers.poisoned_samples import poisoned_experiment
from ..helpers.small_networks import batch_norm, convolution, logistic, mlp
from ..helpers.strategies import FOR_ADAPTERS

EXECUTORS = {"in_process": InProcess, "vectorized": Vectorized}


def with_adapters(spec):
    network = mlp(spec)
    LoRA(rank=2, alpha=4.0, targets=("1",), dropout=0.0).insert(network.get_submodule("encoder"))
    return network


NETWORKS = {"mlp": mlp, "logistic": logistic, "convolution": convolution}


@cache
def strategy(name: str) -> Strategy:
    """A strategy as conf/ composes it, but for what blows up rounding errors: a server's Adam has a larger ε, and SVMs
    are solved to the end.
    """
    solved = ["strategy.server.tolerance=1e-8", "strategy.server.max_iterations=-1"]
    changes = {
        "fedadam": ["strategy.server.eps=1e-3"],
        "fedams": ["strategy.server.eps=1e-3"],
        "fedaws": ["strategy.server.adam_eps=1.0"],
        "turbosvm": ["strategy.server.adam_eps=1.0", *solved],
    }
    return build_experiment(compose([f"strategy={name}", *changes.get(name, [])]).config).strategy


def run(experiment: Experiment, executor: str, rounds: int) -> list[tuple[torch.Tensor, dict[str, float]]]:
    """Model and metrics after each round, times left out; the last model is followed by the client states."""
    simulation = Simulation(replace(experiment, hardware=replace(experiment.hardware, executor=executor)))
    state, trace = simulation.initial(), []
    for _ in range(rounds):
        state, metrics = simulation.advance(state)
        kept = {name: value for name, value in metrics.items() if not name.startswith("time/")}
        kept["client_samples"] = state.totals.client_samples
        kept["params"] = state.totals.params_up + state.totals.params_down
        client_states = [
            vector
            for client in sorted(state.client_states.held)
            for vector in state.client_states.held[client].values()
        ]
        trace.append((torch.cat([state.server.model, *client_states]), kept))
    return trace


def assert_same(trace, other, tolerance: float = 1e-5) -> None:
    for (model, metrics), (other_model, other_metrics) in zip(trace, other, strict=True):
        torch.testing.assert_close(model, other_model, rtol=tolerance, atol=tolerance)
        assert metrics == pytest.approx(other_metrics, rel=10 * tolerance, abs=10 * tolerance)
    assert (trace[0][0][: len(model)] - trace[-1][0][: len(trace[0][0])]).abs().max() > 1e-3


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "fedadam", "turbosvm"])
def test_both_executors_agree(make_experiment, name, network):
    experiment = make_experiment(network=NETWORKS[network], strategy=strategy(name), clients_per_round=5)
    assert_same(run(experiment, "in_process", 3), run(experiment, "vectorized", 3))


def normalised(spec):
    encoder = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten()
    )
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(128, spec.classes)))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_both_executors_agree_on_group_norm(make_experiment, precision, tolerance, caplog):
    """With eight channels and bfloat16, convolutions give channels-last outputs, which vmap cannot copy."""
    experiment = make_experiment(network=normalised, clients_per_round=5, local={"precision": precision, "lr": 0.01})
    initial = Simulation(experiment).initial().server.model
    expected, model = (run(experiment, executor, 1)[0][0] for executor in ("in_process", "vectorized"))
    assert (model - expected).norm() < tolerance * (expected - initial).norm()
    assert "does not support" not in caplog.text


REFUSED = ("fedala", "fedntd", "fedproto", "moon", "moon_turbosvm", "pfedfda")
"""Strategies whose clients need more than gradients of a loss of logits: the other executor trains them."""

HONEST, NOISY, REVERSED = (
    option("attack", name, **({"share": 0.4} if name != "none" else {})) for name in ("none", "gaussian", "sign_flip")
)


def with_strategy(make_experiment, name: str, **changes: object) -> Experiment:
    """Three rounds of the small federation under a strategy's own settings."""
    kept = build_experiment(compose([f"strategy={name}"]).config)
    appeal = option("appeal", "constant", loss=1.0) if kept.appeal.known else kept.appeal
    local = {"epochs": kept.local.epochs} | ({"batch_size": None} if name == "fedsgd" else {})
    required = {"fedbn": batch_norm, **dict.fromkeys(FOR_ADAPTERS, with_adapters)}
    network = required.get(name, mlp)
    return make_experiment(
        network=network, strategy=strategy(name), appeal=appeal, local=local, clients_per_round=5, rounds=3, **changes
    )


@pytest.fixture
def timed(monkeypatch) -> list[list[int]]:
    """The participants of every round, of which each is timed once, with samples of its own."""
    rounds, of_round = [], Costs.of_round

    def watched(costs, cohort, result):
        clients, samples = result.processed[:, 0].tolist(), result.processed[:, 1]
        assert sorted(clients) == sorted(cohort.tolist()) and bool((samples > 0).all())
        rounds.append(sorted(clients))
        return of_round(costs, cohort, result)

    monkeypatch.setattr(Costs, "of_round", watched)
    return rounds


@pytest.mark.parametrize("name", options("strategy"))
def test_both_executors_agree_on_every_strategy(make_experiment, name, caplog, timed):
    """Also on who took part, whose time is measured once, though some train for several models."""
    experiment = with_strategy(make_experiment, name)
    one, other = run(experiment, "in_process", 3), run(experiment, "vectorized", 3)
    assert len(timed) == 6 and timed[:3] == timed[3:]
    warned = "hardware.executor=vectorized does not support strategy/client=" in caplog.text
    assert warned == (name in REFUSED)
    if name in ("fedproto", "solo"):  # no global model moves
        one, other = one[1:], other[1:]
    assert_same(one, other)


@pytest.mark.parametrize("attack", [NOISY, REVERSED], ids=["gaussian", "sign_flip"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "maxfl", "mwfed", "fedumf", "perfedavg", "qffl"])
def test_both_executors_agree_on_attackers(make_experiment, name, attack):
    experiment = with_strategy(make_experiment, name, attack=attack)
    attacked = run(experiment, "in_process", 3)
    assert_same(attacked, run(experiment, "vectorized", 3))
    honest = run(replace(experiment, attack=HONEST), "in_process", 3)
    assert not torch.allclose(honest[-1][0], attacked[-1][0], atol=1e-2)


LOCAL = {
    "momentum, weight decay, clipping": {"momentum": 0.9, "weight_decay": 0.01, "max_gradient_norm": 0.5, "epochs": 2},
    "steps": {"epochs": None, "steps": 7, "momentum": 0.5},
    "one batch of all samples": {"batch_size": None, "epochs": 3},
    "falling rate": {"lr": 0.3, "lr_decay": 0.5},
}

ADAM = {"lr": 0.01, "eps": 1e-3}  # a smaller one magnifies the rounding of gradients near zero
OPTIMIZERS = {
    "nesterov": {"optimizer": "nesterov", "momentum": 0.9, "weight_decay": 0.01},
    "adam": {**ADAM, "optimizer": "adam", "weight_decay": 0.01, "max_gradient_norm": 0.5},
    "adamw": {**ADAM, "optimizer": "adamw", "weight_decay": 0.1, "lr_warmup_rounds": 2, "lr_cosine_rounds": 30},
}


@pytest.mark.parametrize("name", ["fedprox", "fedrep", "solo"])
@pytest.mark.parametrize("local", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_both_executors_agree_on_every_optimizer(make_experiment, name, local):
    """Solo's clients keep the optimizer's state, FedRep's steps freeze parameters, FedProx pulls."""
    experiment = make_experiment(network=mlp, strategy=strategy(name), local={"epochs": 2, **local})
    one, other = run(experiment, "in_process", 3), run(experiment, "vectorized", 3)
    assert_same(*((states[1:] if name == "solo" else states) for states in (one, other)))


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
@pytest.mark.parametrize("local", LOCAL.values(), ids=LOCAL)
def test_both_executors_agree_on_every_way_of_training(make_experiment, name, local):
    experiment = make_experiment(network=mlp, strategy=strategy(name), local=local, clients_per_round=5)
    assert_same(run(experiment, "in_process", 3), run(experiment, "vectorized", 3))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_size_of_the_groups_does_not_matter(make_experiment, monkeypatch, size):
    experiment = make_experiment(network=mlp, strategy=strategy("scaffold"), clients_per_round=6)
    whole = run(experiment, "vectorized", 2)
    monkeypatch.setattr(vectorized, "GROUP", size)
    assert_same(whole, run(experiment, "vectorized", 2), tolerance=2e-6)


def test_vectorized_reports_progress_once_per_group(make_experiment, monkeypatch):
    monkeypatch.setattr(vectorized, "GROUP", 4)
    assert work(make_experiment(network=mlp), "vectorized").progress(range(6)) == [4, 6]
    assert work(make_experiment(network=mlp), "in_process").progress(range(6)) == [1, 2, 3, 4, 5, 6]


# --- an executor by itself -------------------------------------------------------------------------------------------


class RoundResult:
    """An executor and what it is given in the first round."""

    def __init__(self, experiment: Experiment, executor: type[Executor]) -> None:
        simulation = Simulation(experiment)
        state = simulation.initial()
        self.executor = executor(ExecutionContext.of(simulation.phase(state)))
        self.layout = simulation.network.layout
        self.server, self.state = experiment.strategy.server, state.server
        self.received = self.server.broadcast(state.server)
        self.client_states = state.client_states

    def __call__(self, cohort) -> CohortUpdate:
        return self.with_client_states(cohort)[0]

    def with_client_states(self, cohort) -> tuple[CohortUpdate, ClientStates]:
        task = CohortJob(torch.tensor(list(cohort)), 0, self.received, self.client_states)
        return train_cohort(self.executor, self.server, self.state, task)

    def client_results(self, cohort) -> Iterator[ClientResult]:
        return self.executor.client_results(CohortJob(torch.tensor(list(cohort)), 0, self.received, self.client_states))

    def progress(self, cohort) -> list[int]:
        seen: list[int] = []
        task = CohortJob(torch.tensor(list(cohort)), 0, self.received, self.client_states)
        train_cohort(self.executor, self.server, self.state, task, seen.append)
        return seen


def work(experiment: Experiment, executor: str) -> RoundResult:
    return RoundResult(experiment, EXECUTORS[executor])


@pytest.mark.parametrize("executor", EXECUTORS)
def test_rows_are_the_heads_that_the_clients_sent(make_experiment, executor):
    run_cohort = work(make_experiment(network=mlp, strategy=strategy("turbosvm")), executor)
    update = run_cohort([4, 0, 3])
    assert update.rows.shape == (3, 3 * 6 + 3)
    for row, client in zip(update.rows, [4, 0, 3], strict=True):
        alone = run_cohort([client]).mean[MODEL]  # the mean of one client is what it sent
        torch.testing.assert_close(row, alone[16 * 6 + 6 :], rtol=1e-6, atol=1e-7)
    assert not torch.allclose(update.rows[0], update.rows[1], atol=1e-3)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_no_rows_are_kept_that_nobody_asked_for(make_experiment, executor):
    assert work(make_experiment(network=mlp), executor)([0, 1]).rows is None


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_the_server_learns(make_experiment, executor):
    """Clients 4, 0, 3 hold 20, 3, 5 samples: with B = 4 and E = 2 that is 10, 2, 4 steps and 56 samples processed."""
    run_cohort = work(make_experiment(network=mlp, local={"epochs": 2}), executor)
    update = run_cohort([4, 0, 3])
    assert update.clients.tolist() == [4, 0, 3]
    assert update.samples.tolist() == [20, 3, 5]
    assert update.steps.tolist() == [10, 2, 4]
    assert update.processed[:, 1].sum() == 56
    assert update.excluded == ()
    alone = [run_cohort([client]) for client in (4, 0, 3)]
    mean = sum(n * each.mean[MODEL] for n, each in zip((20, 3, 5), alone, strict=True)) / 28
    torch.testing.assert_close(update.mean[MODEL], mean, rtol=1e-5, atol=1e-6)
    loss = sum(n * each.loss for n, each in zip((20, 3, 5), alone, strict=True)) / 28
    assert update.loss == pytest.approx(loss, rel=1e-5)
    assert update.score == pytest.approx(sum(n * e.score for n, e in zip((20, 3, 5), alone, strict=True)) / 28)
    assert update.weights.tolist() == [20, 3, 5]
    assert update.losses.tolist() == pytest.approx([each.loss for each in alone], rel=1e-5)
    one_by_one = work(make_experiment(network=mlp, local={"epochs": 2}), "in_process")([4, 0, 3])
    assert update.losses.tolist() == pytest.approx(one_by_one.losses.tolist(), rel=1e-4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_norms_are_in_the_order_of_selection(make_experiment, executor):
    run_cohort = work(make_experiment(network=mlp, strategy=strategy("fedexp")), executor)
    alone = [run_cohort([client]).mean[MODEL] - run_cohort.received[MODEL] for client in (4, 0, 3)]
    expected = [moved.double().square().sum().item() for moved in alone]
    assert run_cohort([4, 0, 3]).squared_norms.tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_the_order_of_the_cohort_does_not_matter(make_experiment, executor, name):
    run_cohort = work(make_experiment(network=mlp, strategy=strategy(name)), executor)
    one, client_states = run_cohort.with_client_states([5, 1, 4, 0])
    two, other = run_cohort.with_client_states([0, 1, 4, 5])
    for sent in one.mean:
        torch.testing.assert_close(one.mean[sent], two.mean[sent], rtol=1e-6, atol=1e-7)
    assert set(client_states.held) == set(other.held) == ({0, 1, 4, 5} if name == "scaffold" else set())
    for client, vectors in client_states.held.items():
        torch.testing.assert_close(vectors["control"], other.held[client]["control"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["fedproto", "pfedfda"])
@pytest.mark.parametrize("layer", [nn.BatchNorm1d(6), nn.Dropout(0.5)], ids=lambda layer: type(layer).__name__)
def test_a_clients_measurements_leave_the_next_ones_training_as_it_is(make_experiment, name, layer):
    """After its training a client embeds its samples in evaluation mode; the next client trains with dropout and with
    the statistics of its batches.
    """

    def network(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), copy.deepcopy(layer))
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))

    experiment = make_experiment(
        network=network, strategy=strategy(name), local={"batch_size": 3}
    )  # none of one sample
    run_cohort = work(experiment, "in_process")
    alone = {name: vector.clone() for name, vector in next(run_cohort.client_results([2])).uploads.items()}
    *_, second = run_cohort.client_results([5, 2])
    assert alone.keys() == second.uploads.keys() and alone
    for sent, vector in alone.items():
        assert torch.equal(second.uploads[sent], vector), sent


def small_alike() -> Dataset:
    """Twelve times the same sample."""
    inputs, targets = torch.full((12, 1, 4, 4), 100, dtype=torch.uint8), torch.ones(12, dtype=torch.int64)
    return Dataset(Spec((1, 4, 4), 3), Scaled(255.0), inputs, targets, 8, None, ("a", "b", "c"), "alike")


def test_dropout_is_a_function_of_seed_round_and_client(make_experiment):
    """What ran before, and how much randomness it used, must not show."""

    def network(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Dropout(0.5))
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))

    run_cohort = work(make_experiment(network=network), "in_process")
    first = run_cohort([2])
    torch.rand(3)
    assert torch.equal(run_cohort([2]).mean[MODEL], first.mean[MODEL])
    run_cohort([5])
    assert torch.equal(run_cohort([2]).mean[MODEL], first.mean[MODEL])
    alike = small_alike()
    run_cohort = work(make_experiment(network=network, sizes=(4, 4), dataset=alike), "in_process")
    first = run_cohort([0])
    assert not torch.equal(first.mean[MODEL], run_cohort([1]).mean[MODEL])  # nothing else differs
    next_round = CohortJob(torch.tensor([0]), 1, run_cohort.received, run_cohort.client_states)
    later, _ = train_cohort(run_cohort.executor, run_cohort.server, run_cohort.state, next_round)
    assert not torch.equal(first.mean[MODEL], later.mean[MODEL])


def dropping(spec):
    layers = [nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 6), nn.Dropout(0.2)]
    return nn.Sequential(OrderedDict(encoder=nn.Sequential(*layers), head=nn.Linear(6, spec.classes)))


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "perfedavg"])
def test_both_executors_drop_the_same_units(make_experiment, name, caplog):
    """Clients of unequal sizes: the last batches of some are shorter than others', and some make fewer steps."""
    local = {"batch_size": 3, "epochs": 2}
    experiment = make_experiment(network=dropping, strategy=strategy(name), local=local, clients_per_round=5)
    assert_same(run(experiment, "in_process", 3), run(experiment, "vectorized", 3))
    assert not caplog.text


def test_both_executors_drop_all_units(make_experiment):
    def network(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Dropout(1.0))
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))

    experiment = make_experiment(network=network)
    assert_same(run(experiment, "in_process", 2), run(experiment, "vectorized", 2))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc", "fednova", "qffl"])
def test_what_clients_are_given_is_left_alone(make_experiment, executor, name):
    """The broadcast, and the client states of an earlier round."""
    first = work(make_experiment(network=mlp, strategy=strategy(name)), executor)
    _, first.client_states = first.with_client_states([0, 1, 2])
    given = [first.received, *first.client_states.held.values()]
    before = [{key: vector.clone() for key, vector in vectors.items()} for vectors in given]
    first([2, 1, 3])
    for vectors, copies in zip(given, before, strict=True):
        assert all(torch.equal(copies[key], vector) for key, vector in vectors.items())


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [(nn.BatchNorm1d, [6]), (nn.AlphaDropout, [0.1]), (nn.LSTM, [6, 6]), (nn.GRU, [6, 6])],
)
def test_vectorized_refuses_layers_by_name_and_falls_back(make_experiment, layer, arguments, caplog):
    def network(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), layer(*arguments), First())
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))

    experiment = make_experiment(network=network, hardware={"executor": "vectorized"}, local={"batch_size": 3})
    simulation = Simulation(experiment)
    assert type(first_executor(simulation)) is InProcess
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert re.search(
        rf"hardware\.executor=vectorized does not support .* {layer.__name__} .*; using .*in_process", caplog.text
    )


class First(nn.Module):
    """The outputs alone, where a layer returns its states, too."""

    def forward(self, x):
        return x[0] if isinstance(x, tuple) else x


class Dropping(nn.Module):
    """It draws in its forward pass, not by way of a layer."""

    def forward(self, x):
        return nn.functional.dropout(x, 0.5, self.training)


class Counting(nn.Module):
    """It keeps account of its inputs' mean."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean


class Listing(nn.Module):
    """It reads its weights from a list, where torch.func cannot replace them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.listed = [self.layer.weight]

    def forward(self, x):
        return x @ self.listed[0] + self.layer.bias


def masked():
    """A layer whose second row of weights stays as it is."""
    layer = nn.Linear(6, 6)
    layer.weight.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([1]), 0.0))
    return layer


def in_two_places():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (Dropping, r"a model that torch\.vmap cannot compute for many clients at once \(vmap: called random"),
        (Counting, r"a model that torch\.vmap cannot compute for many clients at once \(.*in-?place"),
        (in_two_places, "a model with a layer in two places"),
        (masked, "a model with hooks of its parameters"),
        (Listing, "a model that reads its parameters from other places than its layers, such as a list"),
        (lambda: prune.random_unstructured(nn.Linear(6, 6), "weight", 0.0), None),
    ],
    ids=["dropping", "counting", "in two places", "masked", "listing", "pruned"],
)
def test_what_a_model_of_ones_own_does(make_experiment, part, reason, caplog):
    """What cannot be done side by side is found before a round, reported, and done in turn."""

    def network(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), part())
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))

    experiment = make_experiment(network=network, rounds=6)
    expected, found = (run(experiment, executor, 6) for executor in ("in_process", "vectorized"))
    if reason is None:
        assert "does not support" not in caplog.text
    else:
        assert re.search(rf"hardware\.executor=vectorized does not support {reason}", caplog.text)
    if reason is None:
        assert_same(expected, found)
    else:
        for (model, _), (other, _) in zip(expected, found, strict=True):
            assert torch.equal(model, other)


def test_a_head_for_another_number_of_classes_is_refused(make_experiment):
    def network(spec):
        return nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(16, spec.classes + 1)))

    with pytest.raises(InputError, match=r"gives 4 outputs per sample; allowed: the dataset's 3 classes$"):
        Simulation(make_experiment(network=network))


# --- uploads that are not finite -------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "turbosvm"])
def test_a_client_that_diverges_is_left_out_and_named(make_experiment, executor, name):
    experiment = poisoned_experiment(make_experiment, 2, network=mlp, strategy=strategy(name), local={"epochs": 2})
    run_cohort = work(experiment, executor)
    update, client_states = run_cohort.with_client_states([3, 2, 0, 1])
    assert update.excluded == (2,)
    assert update.clients.tolist() == [3, 0, 1]
    assert update.samples.tolist() == [16, 4, 8]
    assert update.steps.tolist() == [8, 2, 4]
    assert dict(update.processed[:, :2].tolist())[2] == 2 * 12  # it did the work
    assert set(client_states.held) == ({0, 1, 3} if name == "scaffold" else set())
    without = run_cohort([3, 0, 1])
    for sent in without.mean:
        torch.testing.assert_close(update.mean[sent], without.mean[sent], rtol=1e-6, atol=1e-7)
    if name == "turbosvm":
        torch.testing.assert_close(update.rows, without.rows, rtol=1e-6, atol=1e-7)
    assert (update.loss, update.score) == pytest.approx((without.loss, without.score), rel=1e-6)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_client_that_has_finished_rests(make_experiment, network, momentum):
    """Beyond its one step its logits would overflow, while another client goes on."""
    sent = []
    for executor in EXECUTORS:
        experiment = make_experiment(
            network=NETWORKS[network],
            sizes=(4, 40),
            clients_per_round=2,
            local={"lr": 1e25, "momentum": momentum, "batch_size": 4},
        )
        cohort = work(experiment, executor)
        for result in cohort.client_results([0, 1]):
            if result.client == 0:
                assert result.trained.loss_sum.isfinite()
                sent.append(result.uploads[MODEL].clone())
    torch.testing.assert_close(*sent, rtol=1e-4, atol=0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_scaffolds_server_counts_only_those_that_arrived(make_experiment, executor):
    """Three of four arrived: c moves by 3/4 of their mean change."""
    experiment = poisoned_experiment(
        make_experiment,
        1,
        network=mlp,
        strategy=strategy("scaffold"),
        local={"epochs": 2},
        hardware={"executor": executor},
    )
    simulation = Simulation(experiment)
    state, metrics = simulation.advance(simulation.initial())
    assert metrics["clients/excluded"] == 1
    controls = torch.stack([state.client_states.held[client]["control"] for client in (0, 2, 3)])
    torch.testing.assert_close(state.server.slots["control"], controls.sum(0) / 4, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_round_without_any_finite_upload_ends_the_run(make_experiment, executor):
    experiment = poisoned_experiment(
        make_experiment, 0, 1, 2, 3, network=mlp, local={"epochs": 2}, hardware={"executor": executor}
    )
    simulation = Simulation(experiment)
    with pytest.raises(RunError, match=r"round 1: no client's upload was finite \(clients \[.*\]\).*local\.lr"):
        simulation.advance(simulation.initial())


def test_a_server_that_diverges_is_told_from_training_that_does(make_experiment):
    simulation = Simulation(make_experiment())
    state = simulation.initial()
    state.server.model.fill_(float("nan"))
    with pytest.raises(RunError, match=r"the global model had overflowed before, by the server's step"):
        simulation.advance(state)


class Dividing(FedAvg):
    """Divides by zero."""

    def aggregate(self, state, update, round):
        return replace(state, model=update.mean[MODEL] / 0), {}


def test_a_step_of_the_server_that_leaves_no_finite_model_ends_the_run_in_its_round(make_experiment):
    chosen = replace(strategy("fedavg"), server=Dividing(weighting="samples"))
    simulation = Simulation(make_experiment(network=mlp, strategy=chosen, rounds=1))
    with pytest.raises(RunError, match=r"^round 1: the global model is not finite any more, by the server's step"):
        simulation.advance(simulation.initial())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_repaired_parameters_are_sent(make_experiment, executor):
    experiment = poisoned_experiment(
        make_experiment, 2, network=logistic, local={"epochs": 2, "repair_nonfinite": True}
    )
    update = work(experiment, executor)([0, 1, 2, 3])
    assert update.excluded == ()
    alone = work(experiment, executor)([2]).mean[MODEL]
    assert torch.isfinite(alone).all()
    assert (alone == torch.tensor(1e-5)).any()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_parameters_are_repaired_after_every_step(make_experiment, executor, network, momentum):
    """At a rate of 1e34 a step leaves the numbers, and the next one goes on from 1e-5: beside torch's own SGD."""
    local = {"lr": 1e34, "momentum": momentum, "epochs": None, "steps": 3, "repair_nonfinite": True}
    build = NETWORKS[network]
    experiment = make_experiment(sizes=(4, 8, 12, 16), clients_per_round=4, network=build, local=local)
    run_cohort = work(experiment, executor)
    place = run_cohort.executor.context
    inputs, labels = place.samples.gather(place.clients[2])
    start = build(Spec((1, 4, 4), 3))
    start.load_state_dict(place.network.layout.views(run_cohort.state.model.clone()))
    naive, _ = NaiveClients(**local).train(start, inputs.float() / 255, labels, generator(0, "batches", 0, 2), 0)
    expected = torch.cat([tensor.detach().flatten() for tensor in naive.parameters()])
    largest = float(expected.abs().max())
    torch.testing.assert_close(run_cohort([2]).mean[MODEL], expected, rtol=1e-4, atol=1e-6 * largest)
    assert largest > 1  # not repaired once and for all in the end


def test_client_states_are_a_value():
    empty, lengths = ClientStates(), {"control": 2}
    one = empty.updated({3: {"control": torch.ones(2)}})
    assert empty.of(3, lengths, torch.device("cpu"))["control"].tolist() == [0, 0]
    assert one.of(3, lengths, torch.device("cpu"))["control"].tolist() == [1, 1]
    two = one.updated({3: {"control": torch.full((2,), 5.0)}, 1: {"control": torch.full((2,), 2.0)}})
    assert one.held[3]["control"].tolist() == [1, 1]
    assert {client: vectors["control"].tolist() for client, vectors in two.held.items()} == {3: [5, 5], 1: [2, 2]}
    assert ClientStates().updated({1: {}}) == ClientStates()


class CommonSteps(FedAvg):
    """All clients make the same number of steps, which is drawn in every round, as in ProxSkip."""

    def steps(self, state, cohort, usual, round):
        drawn = torch.randint(1, 9, (1,), generator=generator(round.seed, "strategy/steps", round.index))
        return drawn.expand(len(cohort))


def test_a_server_may_draw_the_numbers_of_steps(make_experiment):
    chosen = replace(strategy("fedavg"), server=CommonSteps(weighting="samples"))
    experiment = make_experiment(sizes=(4, 4, 4), network=mlp, strategy=chosen, seed=3, clients_per_round=3, rounds=4)
    simulation = Simulation(experiment)
    state, steps = simulation.initial(), []
    for _ in range(4):
        after, _ = simulation.advance(state)
        steps.append((after.totals.client_samples - state.totals.client_samples) / 12)  # of a batch of 4 each
        state = after
    drawn = [torch.randint(1, 9, (1,), generator=generator(3, "strategy/steps", round)) for round in range(4)]
    assert steps == [int(number) for number in drawn] and len(set(steps)) > 1


class HeadFirst(ClientStrategy):
    """Moves the head alone in the first epoch, the encoder alone afterwards; both ways have random targets."""

    def client_state(self, layout):
        return {"noise": 3}

    def frozen(self, layout, epoch):
        head = torch.zeros(layout.trainable, dtype=torch.bool)
        head[layout.head] = True
        return ~head if epoch == 0 else head

    def finish(self, model, received, client_state, constants, client):
        noise = client.random("noise", lambda draw: torch.randn(3, generator=draw))
        assert (noise.shape, client.is_new.shape) == ((*client.clients.shape, 3), (*client.clients.shape, 1))
        return {MODEL: model}, {"noise": torch.where(client.is_new, noise, client_state["noise"])}


class TwoBatches(HeadFirst):
    """Its steps use two batches, which may lie in two epochs."""

    passes = (1, 1)

    def direction(self, gradient, model, constants):
        return gradient(model, 0) + gradient(model, 1)


@pytest.mark.parametrize("local", [{"epochs": 2}, {"epochs": None, "steps": 5, "momentum": 0.5}, {"batch_size": None}])
def test_both_executors_agree_on_frozen_parameters_and_random_numbers(make_experiment, local):
    """Clients of unequal sizes: in a step some are in their first epoch and others are not."""
    chosen = replace(strategy("fedavg"), client=HeadFirst())
    experiment = make_experiment(network=mlp, strategy=chosen, local=local, clients_per_round=5)
    one, other = run(experiment, "in_process", 3), run(experiment, "vectorized", 3)
    assert_same(one, other)
    # "strategy/": fedrun itself draws with purposes such as "privacy", which strategies must not repeat
    expected = torch.stack([torch.randn(3, generator=generator(0, "strategy/noise", 0, client)) for client in (0, 1)])
    drawn = replace(work(experiment, "vectorized").executor.infos(task_of([0, 1])), round=0)
    assert torch.equal(drawn.random("noise", lambda draw: torch.randn(3, generator=draw)), expected)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_a_step_of_batches_from_two_epochs_belongs_to_the_later_one(make_experiment, executor):
    """20 samples are three batches of 8: batches 0 and 1 move the head, 2 (epoch 0) and 3 (epoch 1) the encoder."""
    chosen = replace(strategy("fedavg"), client=TwoBatches())
    simulation = Simulation(
        make_experiment(
            sizes=(20,),
            network=mlp,
            strategy=chosen,
            clients_per_round=1,
            local={"epochs": None, "steps": 2, "batch_size": 8},
            hardware={"executor": executor},
        )
    )
    before = simulation.initial()
    after, _ = simulation.advance(before)
    moved = after.server.model != before.server.model
    head = simulation.network.layout.head
    assert moved[head].any() and moved[: head.start].any()


@dataclass(frozen=True)
class HalfPrecision(ClientStrategy):
    """Uploads 2 000 float16 numbers of 60, whose sum is beyond float16's largest number, 65 504."""

    entry: float

    @property
    def sends(self):
        return frozenset({MODEL, "more"})

    def finish(self, model, received, client_state, constants, client):
        return {MODEL: model, "more": model.new_full((*model.shape[:-1], 2000), self.entry, dtype=torch.float16)}, {}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_a_finite_float16_upload_is_accepted_whatever_its_sum(make_experiment, executor):
    chosen = replace(strategy("fedavg"), client=HalfPrecision(60.0))
    update = work(make_experiment(network=mlp, strategy=chosen), executor)([0, 1, 2])
    assert update.mean["more"].eq(60).all() and update.excluded == ()
    infinite = replace(strategy("fedavg"), client=HalfPrecision(float("inf")))
    assert work(make_experiment(network=mlp, strategy=infinite), executor)([0, 1, 2]).excluded == (0, 1, 2)


@dataclass(frozen=True)
class Carrying(ClientStrategy):
    """Keeps the momentum, and the one with which the round began."""

    keeps_optimizer: ClassVar[bool] = True

    def client_state(self, layout):
        return {"before": layout.trainable}

    def finish(self, model, received, client_state, constants, client):
        return {MODEL: model}, {"before": client_state[OPTIMIZER].clone()}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_the_optimizers_state_before_the_round_is_what_finish_receives(make_experiment, executor):
    chosen, local = replace(strategy("fedavg"), client=Carrying()), {"momentum": 0.9}
    experiment = make_experiment(network=mlp, strategy=chosen, local=local, clients_per_round=6)
    simulation = Simulation(replace(experiment, hardware=replace(experiment.hardware, executor=executor)))
    one, _ = simulation.advance(simulation.initial())
    two, _ = simulation.advance(one)
    for client, held in two.client_states.held.items():
        assert not one.client_states.held[client]["before"].any()
        assert torch.equal(held["before"], one.client_states.held[client][OPTIMIZER])


@dataclass(frozen=True)
class Naming(ClientStrategy):
    """Counts a client's rounds in a vector of any name."""

    name: str
    keeps_optimizer: bool = False

    def client_state(self, layout):
        return {self.name: 1}

    def finish(self, model, received, client_state, constants, client):
        return {MODEL: model}, {self.name: client_state[self.name] + 1}


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", [OPTIMIZER, LAST, PRIVATE])
def test_a_strategys_vector_may_have_any_name_that_is_free(make_experiment, name, momentum, executor):
    models = {}
    for client in (ClientStrategy(), Naming(name)):
        chosen = replace(strategy("fedavg"), client=client)
        experiment = make_experiment(network=mlp, strategy=chosen, local={"momentum": momentum}, clients_per_round=6)
        simulation = Simulation(replace(experiment, hardware=replace(experiment.hardware, executor=executor)))
        state = simulation.initial()
        for _ in range(2):
            state, _ = simulation.advance(state)
        models[type(client)] = state.server.model
    assert [held[name].tolist() for held in state.client_states.held.values()] == [[2.0]] * 6
    assert torch.equal(*models.values())


def test_a_strategys_vector_of_the_name_of_one_of_fedruns(make_experiment):
    chosen = replace(strategy("fedavg"), client=Naming(OPTIMIZER, keeps_optimizer=True))
    message = r"Naming\.client_state: names a vector 'momentum', as fedrun does in this run; allowed: another name$"
    with pytest.raises(InputError, match=message):
        Simulation(make_experiment(network=mlp, strategy=chosen, local={"momentum": 0.9}))


def task_of(cohort: list[int]) -> CohortJob:
    return CohortJob(torch.tensor(cohort), 0, {}, ClientStates())


class Watched(ClientStrategy):
    """Looks whether the vectors of the client before are still held when the next one begins."""

    def __init__(self) -> None:
        self.vectors: list[weakref.ref[torch.Tensor]] = []
        self.held: list[int] = []

    def noted(self, vector: torch.Tensor) -> torch.Tensor:
        self.vectors.append(weakref.ref(vector))
        return vector

    def constants(self, received, client_state, client):
        self.held.append(sum(vector() is not None for vector in self.vectors))
        return {"anchor": self.noted(received[MODEL].clone())}

    def finish(self, model, received, client_state, constants, client):
        return {MODEL: self.noted(model + 0.0)}, {}


def test_one_clients_vectors_do_not_outlive_its_visit(make_experiment):
    client = Watched()
    experiment = make_experiment(
        network=mlp,
        strategy=replace(strategy("fedavg"), client=client),
        clients_per_round=4,
        hardware={"executor": "in_process"},
    )
    simulation = Simulation(experiment)
    simulation.advance(simulation.initial())
    assert client.held == [0, 0, 0, 0] and len(client.vectors) == 8


def test_an_excluded_upload_was_sent(make_experiment):
    # it was sent, though it is left out
    simulation = Simulation(poisoned_experiment(make_experiment, 2, network=mlp, local={"epochs": 2}))
    totals = simulation.advance(simulation.initial())[0].totals
    size = simulation.network.layout.size
    assert (totals.params_up, totals.params_down, totals.excluded) == (4 * size, 4 * size, 1)


@dataclass(frozen=True)
class Weightless(FedAvg):
    """Gives every client the weight 0, and collects the updates."""

    seen: list[Any] = field(default_factory=list)
    rows: ClassVar[str] = "all"

    def weights(self, state, senders):
        return torch.zeros(len(senders.clients), dtype=torch.float64)

    def aggregate(self, state, update, round):
        self.seen.append((update.rows, update.shares, update.mean["model"].clone()))
        return super().aggregate(state, update, round)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_clients_without_weights_count_alike(make_experiment, executor):
    """In whatever order they arrive: the vectorised executor sorts clients by their steps."""
    server = Weightless(weighting="samples")
    strategy = Strategy(client=option("strategy/client", "sgd"), server=server)
    experiment = make_experiment(sizes=(12, 3, 20, 5), strategy=strategy, hardware={"executor": executor})
    simulation = Simulation(experiment)
    simulation.advance(simulation.initial())
    ((rows, shares, mean),) = server.seen
    assert shares.tolist() == [1 / len(rows)] * len(rows) and len(rows) > 1
    torch.testing.assert_close(mean, rows.mean(0))


@dataclass(frozen=True)
class Noisy(ClientStrategy):
    """Draws from PyTorch's own generator, in place of the addressed ones."""

    def constants(self, received, client_state, client):
        return {"shift": torch.randn(client.trainable)}

    def direction(self, gradient, model, constants):
        return gradient(model, 0) + 0.1 * torch.randn_like(model) + 0.1 * constants["shift"]


@dataclass(frozen=True)
class NoisyServer(FedAvg):
    """So does its server side."""

    def aggregate(self, state, update, round):
        after, metrics = super().aggregate(state, update, round)
        return replace(after, model=after.model + 0.1 * torch.randn_like(after.model)), metrics


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_hooks_that_draw_from_pytorchs_generator_repeat_themselves(make_experiment, executor):
    strategy = Strategy(client=Noisy(), server=option("strategy/server", "fedavg"))
    models = [drawn_model(make_experiment, strategy, executor, seed) for seed in (1, 2)]
    assert torch.equal(*models)


def test_a_server_that_draws_does_not_depend_on_who_trained_before(make_experiment):
    """Executors, as ranks, end their training with other states of the generator."""
    plain = option("strategy/server", "fedavg")
    noisy = NoisyServer(**{item.name: getattr(plain, item.name) for item in fields(plain)})
    strategy = Strategy(client=option("strategy/client", "sgd"), server=noisy)
    models = [drawn_model(make_experiment, strategy, executor, 1) for executor in ("in_process", "vectorized")]
    torch.testing.assert_close(*models, rtol=1e-4, atol=1e-5)


def drawn_model(make_experiment, strategy: Strategy, executor: str, seed: int) -> torch.Tensor:
    """The model after two rounds, each begun with this state of PyTorch's generator."""
    simulation = Simulation(make_experiment(network=mlp, strategy=strategy, hardware={"executor": executor}))
    state = simulation.initial()
    for _ in range(2):
        torch.manual_seed(seed)
        state, _ = simulation.advance(state)
    return state.server.model


@dataclass(frozen=True)
class Drawing(ClientStrategy):
    """Notes what its clients draw from PyTorch's own generator."""

    drawn: list[float]

    def constants(self, received, client_state, client):
        self.drawn.append(torch.rand(()).item())
        return {}


@dataclass(frozen=True)
class DrawingServer(FedAvg):
    """Notes what it draws from PyTorch's own generator."""

    drawn: list[float] = field(default_factory=list)

    def aggregate(self, state, update, round):
        self.drawn.append(torch.rand(()).item())
        return super().aggregate(state, update, round)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_hooks_draw_other_numbers_in_every_round(make_experiment, executor):
    client, server = Drawing([]), DrawingServer(weighting="samples")
    strategy = Strategy(client=client, server=server)
    simulation = Simulation(
        make_experiment(network=mlp, strategy=strategy, clients_per_round=6, hardware={"executor": executor})
    )
    state, first_draws = simulation.initial(), set()
    for _ in range(3):
        client.drawn.clear()
        state, _ = simulation.advance(state)
        first_draws.add(client.drawn[0])  # a check of the vectorised executor draws later, always the same
    assert len(first_draws) == len(set(server.drawn)) == 3
