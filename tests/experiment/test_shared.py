"""Models of which a client strategy would send, or train, nothing."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import ClientStrategy
from fedrun.system.errors import InputError

from ..helpers.quadratic_clients import FEDAVG
from ..helpers.small_networks import logistic


def only_the_head(spec):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.Tanh())
    encoder.requires_grad_(False)
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def with_statistics(spec):
    """The head and BatchNorm's running statistics change."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6))
    encoder.requires_grad_(False)
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def chosen(name, *settings):
    return build_experiment(compose([f"strategy={name}", *settings])).strategy


@pytest.mark.parametrize("name", ["fedbabu", "fedper", "fedrep"])
def test_private_entries_that_are_all_that_is_trained(make_experiment, name):
    experiment = make_experiment(network=only_the_head, strategy=chosen(name, "local.epochs=11"), local={"epochs": 11})
    with pytest.raises(InputError, match=rf"^strategy/client={name} keeps all .* to send; .*below its head$"):
        Simulation(experiment)


@pytest.mark.parametrize("network", [logistic, only_the_head])
@pytest.mark.parametrize("name", ["moon", "fedproto"])
def test_embeddings_that_do_not_change(make_experiment, name, network):
    with pytest.raises(InputError, match=rf"^strategy/client={name} compares embeddings, .*below its head$"):
        Simulation(make_experiment(network=network, strategy=chosen(name)))


def test_no_shared_layer(make_experiment):
    experiment = make_experiment(network=only_the_head, strategy=chosen("lgfedavg", "strategy.client.shared=[]"))
    with pytest.raises(InputError, match=r"^strategy/client=lgfedavg keeps all trained parameters"):
        Simulation(experiment)


def test_running_statistics_are_something_to_send_but_not_to_train(make_experiment):
    batches = {"batch_size": 3}  # none of one sample
    Simulation(make_experiment(network=with_statistics, strategy=chosen("fedper"), local=batches))
    with pytest.raises(InputError, match=r"^strategy/client=fedbabu trains no parameter .*; .*below its head$"):
        Simulation(make_experiment(network=with_statistics, strategy=chosen("fedbabu"), local=batches))


@dataclass(frozen=True)
class Late(ClientStrategy):
    """Trains in the second epoch only."""

    def frozen(self, layout, epoch):
        return None if epoch == 1 else torch.ones(layout.trainable, dtype=torch.bool)


def test_epochs_in_which_nothing_is_trained(make_experiment):
    strategy = Strategy(client=Late(), server=FEDAVG)
    Simulation(make_experiment(strategy=strategy, local={"epochs": 2}))
    Simulation(make_experiment(strategy=strategy, local={"epochs": None, "steps": 40}))
    with pytest.raises(InputError, match=r"Late trains no parameter of this model in any epoch"):
        Simulation(make_experiment(strategy=strategy, local={"epochs": 1}))


def test_strategies_that_are_to_send_no_model(make_experiment):
    Simulation(make_experiment(network=only_the_head, strategy=chosen("solo")))
