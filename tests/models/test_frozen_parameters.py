"""Frozen parameters in a run: one copy in the network, sent once, saved with the model, absent from the checkpoint."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrun.execution.vector_store import VectorStore
from fedrun.runs import checkpoint
from fedrun.runs.checkpoint import Checkpoint, Identity
from fedrun.runs.metrics_file import Written
from fedrun.runs.saved_model import load_network, save_model
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..conftest import SIZES


def half_frozen(spec):
    """16 -> 6 (frozen: 96 + 6) -> 5 -> classes: 30 + 5 and 5 C + C trained."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh())
    encoder[1].requires_grad_(False)
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(5, spec.classes)))


TRAINED = 30 + 5 + 5 * 3 + 3


@pytest.fixture
def experiment(make_experiment):
    def make(executor="in_process"):
        return make_experiment(network=half_frozen, clients_per_round=2, hardware={"executor": executor})

    return make


def test_a_round_trains_and_sends_the_rest(experiment):
    simulations = [Simulation(experiment(executor)) for executor in ("in_process", "vectorized")]
    states = [simulation.advance(simulation.initial())[0] for simulation in simulations]
    models = [state.server.model for state in states]
    assert all(model.shape == (TRAINED,) for model in models)
    torch.testing.assert_close(*models)
    initial = simulations[0].initial()
    assert not torch.equal(models[0], initial.server.model)
    assert initial.totals.params_down == len(SIZES) * 102  # to every client, once
    assert states[0].totals.params_down == len(SIZES) * 102 + 2 * TRAINED
    assert states[0].totals.params_up == 2 * TRAINED


def test_a_client_moves_as_in_plain_pytorch(make_experiment):
    """One client, one batch of all its samples: θ − η ∇F on the parameters that require a gradient."""
    simulation = Simulation(make_experiment(network=half_frozen, sizes=(12,), clients_per_round=1,
                                            local={"batch_size": None, "lr": 0.5}))  # fmt: skip
    plain = copy.deepcopy(simulation.network.network)
    state = simulation.initial()
    samples = simulation.phase(state).samples
    inputs, targets = samples.gather(simulation.federation.train[0])
    nn.functional.cross_entropy(plain(samples.encoding(inputs)), targets).backward()
    state, _ = simulation.advance(state)
    for name, tensor in simulation.network.layout.views(state.server.model).items():
        parameter = plain.get_parameter(name)
        torch.testing.assert_close(tensor, parameter.detach() - 0.5 * parameter.grad)


def test_the_saved_model_is_whole(experiment, tmp_path):
    run = experiment()
    simulation = Simulation(run)
    state, _ = simulation.advance(simulation.initial())
    save_model(simulation.phase(state), state, tmp_path / "model.safetensors")
    torch.manual_seed(99)  # the network is built with other frozen parameters, which the file's replace
    saved = load_network(tmp_path / "model.safetensors", run.model, simulation.dataset.spec)
    simulation.network.load(state.server.model)
    images = torch.rand(3, 1, 4, 4)
    assert torch.equal(saved(images), simulation.network.network.eval()(images))


def test_a_checkpoint_is_of_one_set_of_frozen_parameters(experiment, tmp_path):
    simulation = Simulation(experiment())
    state, path = simulation.initial(), tmp_path / "checkpoint.pt"
    identity = Identity("config", 0, "data", frozen=simulation.network.frozen_fingerprint)
    store = VectorStore(TRAINED, 2**20, None)
    checkpoint.save(path, Checkpoint(state, Written(), "", 0.0, 1), identity, store)
    assert torch.equal(checkpoint.load(path, identity, state, store).state.server.model, state.server.model)
    saved = torch.load(path, weights_only=True)
    assert saved["models"][0]["model"].shape == (TRAINED,)
    with pytest.raises(InputError, match=r"was made with other frozen parameters .*pretrained"):
        checkpoint.load(path, replace(identity, frozen="other"), state, store)
