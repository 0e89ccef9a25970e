"""Which executor works, and what is said about it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.data.population import Population
from fedrun.execution.choice import is_trial, least_seconds, next_executor
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation


def refused(spec):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.AlphaDropout(0.1))
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def test_a_refusal_is_told_once_a_run(make_experiment, caplog, default_experiment):
    """Thresholds and local tuning, in every evaluation, fall back as the federated training does, without a word."""
    experiment = make_experiment(
        network=refused,
        population=Population(
            unseen_clients=2, test_share=0.4, test_of="auto", flipped_share=0.0, pooled=False, seed=None
        ),
        clients_per_round=2,
        appeal=option("appeal", "warmup", steps=2),
        evaluation=replace(default_experiment.evaluation, tuning_steps=1),
        hardware={"executor": "vectorized"},
    )
    simulation = Simulation(experiment)
    state = simulation.initial()
    for _ in range(2):
        simulation.test(state)
        state, _ = simulation.advance(state)
    assert caplog.text.count("hardware.executor=vectorized does not support a model with AlphaDropout layers") == 1


def test_both_are_tried_in_turn_and_the_better_round_of_each_counts():
    timings = (("in_process", 5.0), ("vectorized", 9.0), ("in_process", 4.0), ("vectorized", 3.0))
    tried = [next_executor("auto", timings[:rounds]) for rounds in range(4)]
    assert tried == ["in_process", "vectorized", "in_process", "vectorized"]
    assert [is_trial("auto", timings[:rounds]) for rounds in range(5)] == [True, True, True, True, False]
    assert least_seconds(timings) == {"in_process": 4.0, "vectorized": 3.0}
    assert next_executor("auto", timings) == "vectorized"
    assert next_executor("auto", (*timings[:3], ("vectorized", 4.5))) == "in_process"
    assert next_executor("vectorized", ()) == "vectorized" and not is_trial("vectorized", ())


def perceptron(units):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, units))
    return lambda spec: nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(units, spec.classes)))


def convolutional(spec):
    encoder = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(8, spec.classes)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"network": perceptron(6), "clients_per_round": 4}, "vectorized"),
        ({"network": perceptron(6), "clients_per_round": 3}, "in_process"),
        ({"network": perceptron(2**14), "clients_per_round": 4}, "in_process"),  # 2^18 weights in a layer
        ({"network": convolutional, "clients_per_round": 4}, "in_process"),
        ({"network": perceptron(6), "clients_per_round": 4, "local": {"precision": "bfloat16"}}, "in_process"),
        ({"network": perceptron(6), "clients_per_round": 4, "strategy": "moon"}, "in_process"),  # not supported
        ({"network": perceptron(6), "clients_per_round": 4, "hardware": {"executor": "in_process"}}, "in_process"),
    ],
)
def test_without_a_request_the_model_decides(make_experiment, caplog, changes, expected):
    if name := changes.get("strategy"):
        client = option("strategy/client", name)
        changes = {**changes, "strategy": Strategy(client=client, server=option("strategy/server", "fedavg"))}
    simulation, state = rounds(make_experiment(**changes), 1)
    assert (simulation.executor_name(state), caplog.text) == (expected, "")


def rounds(experiment, count, state=None):
    simulation = Simulation(experiment)
    state = simulation.initial() if state is None else state
    for _ in range(count):
        state, _ = simulation.advance(state)
    return simulation, state


def test_the_faster_executor_is_found_and_told(make_experiment, caplog):
    experiment = make_experiment(clients_per_round=3)
    auto = replace(experiment, hardware=replace(experiment.hardware, executor="auto"))
    with caplog.at_level(logging.INFO, "fedrun"):
        simulation, state = rounds(auto, 6)
    assert [name for name, _ in state.timings] == ["in_process", "vectorized"] * 2
    least = least_seconds(state.timings)
    fastest = min(least, key=least.get)
    assert all(0 < seconds < 1 for seconds in least.values())
    assert simulation.executor_name(state) == fastest
    assert f"; {fastest} from round 5 on" in caplog.text
    _, alone = rounds(experiment, 6)
    torch.testing.assert_close(state.server.model, alone.server.model, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("faster", ["in_process", "vectorized"])
def test_what_a_trial_has_found_is_part_of_the_state(make_experiment, faster):
    """Whoever takes up a state works as the one who left it, to the last bit."""
    experiment = make_experiment(clients_per_round=4)
    timings = tuple((name, 1.0 if name == faster else 2.0) for name in ("in_process", "vectorized") * 2)
    begun = replace(Simulation(experiment).initial(), timings=timings)
    _, auto = rounds(replace(experiment, hardware=replace(experiment.hardware, executor="auto")), 2, begun)
    _, named = rounds(replace(experiment, hardware=replace(experiment.hardware, executor=faster)), 2, begun)
    assert torch.equal(auto.server.model, named.server.model)
    assert auto.timings == timings


def test_nothing_is_tried_where_one_executor_cannot_work(make_experiment, caplog):
    experiment = make_experiment(network=refused, clients_per_round=2, hardware={"executor": "auto"})
    simulation, state = rounds(experiment, 5)
    assert (state.timings, simulation.executor_name(state), caplog.text) == ((), "in_process", "")
