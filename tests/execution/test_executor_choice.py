"""Which executor works, and what is said about it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
from torch import nn

from fedrun.config.build import option
from fedrun.data.population import Population
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


class Centred(nn.Module):
    """Normalises its batches in training only."""

    def forward(self, x):
        return x - x.mean(0) if self.training else x


def centred(spec):
    encoder = nn.Sequential(Centred(), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(16, spec.classes)))


def test_a_model_that_mixes_samples_trains_in_process(make_experiment, caplog):
    """The samples that fill up short batches would change the others' outputs."""
    simulation = Simulation(make_experiment(network=centred, hardware={"executor": "vectorized"}))
    assert simulation.round_runner(simulation.initial()).executor.name == "in_process"
    assert "does not support a model whose outputs for a sample depend on the other samples of the batch" in caplog.text


def perceptron(units):
    def build(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, units))
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(units, spec.classes)))

    return build


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
    simulation = Simulation(make_experiment(**changes))
    executor = simulation.round_runner(simulation.initial()).executor
    assert (executor.name, caplog.text) == (expected, "")
