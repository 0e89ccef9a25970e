"""MOON: worked numbers, networks against a naive server, its reduction to FedAvg, client states and cost."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.experiment.strategy import Strategy
from fedrun.runs.checkpoint import Checkpoint, Identity, load, save
from fedrun.runs.metrics_file import Written
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import Outputs

from ..helpers.naive_strategies import NaiveMoon
from ..helpers.quadratic_clients import FEDAVG, info_of
from ..helpers.small_networks import COHORT, NETWORKS, assert_as_naive, batch_norm, final_model, mlp


def moon(mu: float = 1.0, tau: float = 0.5, newcomers: str = "skip") -> Strategy:
    return Strategy(client=option("strategy/client", "moon", mu=mu, tau=tau, newcomers=newcomers), server=FEDAVG)


@pytest.mark.parametrize(("is_new", "expected"), [(False, 0.2176217), (True, 0.0)])
def test_the_contrastive_term(is_new, expected):
    """Cosines 0.7071 and 0, τ = 0.5; nothing for a client that has no earlier model. Two equal logits: ln 2."""
    client, info = moon().client, replace(info_of((1,), 0, 1, 0.1), is_new=torch.tensor([is_new]))
    constants = client.constants({"model": torch.ones(2)}, {"previous": torch.ones(2)}, info)
    z, logits = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
    others = {"model": torch.tensor([[1.0, 1.0]]), "previous": torch.tensor([[0.0, 1.0]])}
    outputs = Outputs(logits, z, {name: Outputs(logits, other) for name, other in others.items()})
    loss = client.loss(outputs, torch.tensor([0]), constants)
    assert loss.tolist() == pytest.approx([math.log(2) + expected], abs=1e-6)
    assert math.log(1 + math.exp(-(2**0.5))) == pytest.approx(0.2176217, abs=1e-7)


@pytest.mark.parametrize("network", NETWORKS)
def test_networks(make_experiment, network):
    build, local = NETWORKS[network], {"epochs": 2, "momentum": 0.5}
    experiment = make_experiment(network=build, local=local, strategy=moon(2.0, 0.3), clients_per_round=COHORT)
    naive = partial(NaiveMoon, mu=2.0, tau=0.3)
    assert_as_naive(
        make_experiment, network, naive, local=local, strategy=moon(2.0, 0.3), rounds=4, executors=["in_process"]
    )
    plain = final_model(replace(experiment, strategy=moon(0.0)), 4)
    assert not torch.allclose(plain, final_model(experiment, 4), atol=1e-3)  # the term did something


@pytest.mark.parametrize("network", NETWORKS)
def test_newcomers_are_contrasted_with_the_initial_model(make_experiment, network):
    local, pair = {"epochs": 2, "momentum": 0.5}, moon(2.0, 0.3, newcomers="initial")
    naive = partial(NaiveMoon, mu=2.0, tau=0.3, with_initial=True)
    assert_as_naive(make_experiment, network, naive, local=local, strategy=pair, rounds=4, executors=["in_process"])


@pytest.mark.parametrize("network", [mlp, batch_norm])
def test_without_weight_it_is_fedavg(make_experiment, network):
    experiment = make_experiment(network=network, local={"epochs": 2})
    contrastive = final_model(replace(experiment, strategy=moon(0.0)), 3)
    torch.testing.assert_close(contrastive, final_model(experiment, 3), rtol=1e-6, atol=1e-7)


def normalised_weights(spec: Spec) -> nn.Sequential:
    """The first layer has no outputs if all its numbers are 0: it divides by the norm of its weights."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(math.prod(spec.input_shape), 6))
    encoder = nn.Sequential(nn.Flatten(), layer, nn.Tanh())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


class KeepsFeatures(nn.Module):
    """Keeps what it has computed, with its gradient's graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 6)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.features = torch.tanh(self.layer(inputs.flatten(1)))
        return self.features


def keeps_features(spec: Spec) -> nn.Sequential:
    return nn.Sequential(OrderedDict(encoder=KeepsFeatures(), head=nn.Linear(6, spec.classes)))


def keeps_nothing(spec: Spec) -> nn.Sequential:
    encoder = nn.Sequential(OrderedDict(flat=nn.Flatten(), layer=nn.Linear(16, 6), tanh=nn.Tanh()))
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def test_a_layer_may_keep_what_it_has_computed(make_experiment):
    models = [final_model(make_experiment(network=net, strategy=moon()), 2) for net in (keeps_features, keeps_nothing)]
    assert torch.equal(*models)


def test_a_first_round_is_fedavgs_for_weights_that_are_normalised(make_experiment):
    experiment = make_experiment(network=normalised_weights, local={"epochs": 2})
    contrastive = final_model(replace(experiment, strategy=moon()), 1)
    torch.testing.assert_close(contrastive, final_model(experiment, 1), rtol=1e-6, atol=1e-7)


def test_the_whole_previous_model_is_in_the_client_state_and_in_a_checkpoint(make_experiment, tmp_path):
    simulation = Simulation(make_experiment(network=batch_norm, strategy=moon(), clients_per_round=COHORT))
    size = simulation.network.layout.size
    state, _ = simulation.advance(simulation.initial())
    assert {len(vectors["previous"]) for vectors in state.client_states.held.values()} == {size}
    identity = Identity("c", 0, "d")
    save(tmp_path / "checkpoint.pt", Checkpoint(state, Written(), "", 0.0, 1), identity, simulation.store)
    restored = load(tmp_path / "checkpoint.pt", identity, simulation.initial(), simulation.store).state
    for _ in range(2):
        state, restored = simulation.advance(state)[0], simulation.advance(restored)[0]
    assert torch.equal(state.server.model, restored.server.model)
    assert state.totals == restored.totals


def test_two_forward_passes_more_per_sample(make_experiment):
    simulation = Simulation(make_experiment(network=mlp, strategy=moon(), clients_per_round=6, local={"epochs": 2}))
    totals = simulation.advance(simulation.initial())[0].totals
    assert (totals.client_samples, totals.forward_samples) == (120, 240)


def test_the_vectorised_executor_refuses_it_by_name_and_falls_back(make_experiment, caplog):
    simulation = Simulation(make_experiment(network=mlp, strategy=moon(), hardware={"executor": "vectorized"}))
    simulation.advance(simulation.initial())
    assert "hardware.executor=vectorized does not support strategy/client=moon, which uses" in caplog.text
