"""Training in bfloat16: rounded where it computes, float32 where it keeps."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.models.precision import computing
from fedrun.simulation.simulation import Simulation
from fedrun.training import fused_sgd as descent


def small_network(spec):
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.ReLU())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(8, spec.classes)))


def trained(experiment, precision, executor="in_process"):
    experiment = replace(
        experiment,
        local=replace(experiment.local, precision=precision),
        hardware=replace(experiment.hardware, executor=executor),
    )
    simulation = Simulation(experiment)
    state, metrics = simulation.advance(simulation.initial())
    return simulation, state, metrics


def by_hand(experiment, simulation):
    """One client's epoch, with every layer's inputs, weights and biases rounded by hand."""
    network, data = copy.deepcopy(simulation.network.network), simulation.dataset
    simulation.network.load(simulation.initial().server.model)
    network.load_state_dict(copy.deepcopy(simulation.network.network.state_dict()))
    parameters = dict(network.named_parameters())
    own = simulation.federation.train[0]
    for _ in range(experiment.local.epochs):
        rounded = {name: tensor.bfloat16() for name, tensor in parameters.items()}
        x = nn.functional.conv2d(
            data.encoding(data.inputs[own]).bfloat16(),
            rounded["encoder.0.weight"],
            rounded["encoder.0.bias"],
            padding=1,
        )
        x = torch.relu(x).flatten(1)
        x = torch.relu(nn.functional.linear(x, rounded["encoder.3.weight"], rounded["encoder.3.bias"]))
        x = nn.functional.linear(x, rounded["head.weight"], rounded["head.bias"])
        loss = nn.functional.cross_entropy(x.float(), data.targets[own])
        for parameter, gradient in zip(
            parameters.values(), torch.autograd.grad(loss, list(parameters.values())), strict=True
        ):
            parameter.data.sub_(gradient, alpha=experiment.local.lr)
    return parameters


@pytest.mark.parametrize("large", [0, 2**18], ids=["every linear layer descends", "none does"])
def test_layers_are_rounded_and_parameters_are_not(make_experiment, monkeypatch, large):
    monkeypatch.setattr(descent, "LARGE", large)
    experiment = make_experiment(
        sizes=(20,), network=small_network, clients_per_round=1, local={"batch_size": None, "epochs": 4}
    )
    simulation, state, _ = trained(experiment, "bfloat16")
    expected = by_hand(experiment, simulation)
    exact = trained(experiment, "float32")[1].server.model
    found, other = (simulation.network.layout.views(model) for model in (state.server.model, exact))
    assert all(view.dtype == torch.float32 for view in found.values())
    away, unlike = (
        torch.cat([(views[name] - parameter.detach()).flatten() for name, parameter in expected.items()]).norm()
        for views in (found, other)
    )
    assert away < 0.2 * unlike
    assert 1e-4 < unlike < 1e-2


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedrs"])
def test_both_executors_round_alike(make_experiment, name):
    strategy = build_experiment(compose([f"strategy={name}"]).config).strategy
    experiment = make_experiment(network=small_network, strategy=strategy, clients_per_round=5)
    one, other, exact = (
        trained(experiment, *how)[1].server.model
        for how in (("bfloat16", "in_process"), ("bfloat16", "vectorized"), ("float32", "in_process"))
    )
    assert 1e-5 < (one - exact).abs().max() < 2e-2
    torch.testing.assert_close(one, other, rtol=1e-2, atol=5e-3)


@pytest.mark.parametrize("appeal", ["none", "warmup"])
def test_dropout_in_perceptrons_is_trained_in_process(make_experiment, appeal, caplog):
    """Side by side it is drawn in float32 only; thresholds, too, are trained as the local training says."""

    def network(spec):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5))
        return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(8, spec.classes)))

    experiment = make_experiment(network=network, appeal=option("appeal", appeal))
    simulation, _, _ = trained(experiment, "bfloat16", "vectorized")
    assert "hardware.executor=vectorized does not support a model with Dropout layers" in caplog.text
    assert len(simulation.thresholds) == (appeal == "warmup")


@pytest.mark.parametrize("client", ["moon", "fedprox"])
def test_what_client_strategies_add_to_the_loss_is_float32(make_experiment, client):
    strategy = replace(make_experiment().strategy, client=option("strategy/client", client))
    experiment = make_experiment(network=small_network, strategy=strategy, clients_per_round=3)
    _, state, metrics = trained(experiment, "bfloat16")
    _, exact, wanted = trained(experiment, "float32")
    assert state.server.model.dtype == torch.float32
    assert metrics["train/loss"] == pytest.approx(wanted["train/loss"], rel=1e-2)
    torch.testing.assert_close(state.server.model, exact.server.model, rtol=0, atol=2e-2)


def test_float32_is_left_as_it_is():
    x = torch.randn(3, 4)
    with computing("float32", torch.device("cpu")):
        assert (x @ x.T).dtype == torch.float32
    with computing("bfloat16", torch.device("cpu")):
        assert (x @ x.T).dtype == torch.bfloat16
