"""Small networks for the test federation, and their comparison with a naive server after every round."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from fedrun.experiment.participation.base import select
from fedrun.experiment.state import State
from fedrun.simulation.simulation import Simulation

from .naive_averaging import NaiveClients, NaiveServer


def mlp(spec):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def batch_norm(spec):
    """27 weights, 6 of BatchNorm, 36 + 3 of the head: 72 parameters, and 6 buffers."""
    # no bias below BatchNorm: its gradient would be a rounding error, which Adam makes a step of
    encoder = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(12, spec.classes)))


def logistic(spec):
    """16 x 3 weights and 3 biases: 51 parameters."""
    return nn.Sequential(OrderedDict(encoder=nn.Flatten(), head=nn.Linear(16, spec.classes)))


def convolution(spec):
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(16, spec.classes)))


NETWORKS = {"mlp": mlp, "batch_norm": batch_norm}

COHORT = 4
"""Clients per round, of six."""


def data_of(simulation: Simulation) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Every client's encoded samples and labels."""
    dataset, clients = simulation.dataset, simulation.federation.train
    return [(dataset.inputs[clients[k]].float() / 255, dataset.targets[clients[k]]) for k in range(len(clients))]


def network_of(simulation: Simulation, build) -> nn.Module:
    """An ordinary network with the simulation's initial values."""
    network = build(simulation.dataset.spec)
    network.load_state_dict(simulation.network.tensors(simulation.initial().server.model.clone()), strict=False)
    return network


def assert_equal_after(
    simulation: Simulation, naive: NaiveServer, rounds: int = 3, tolerance: float = 1e-5, cohort: int = COHORT
) -> State:
    """Both run ``rounds`` rounds; every float tensor must agree after each. The last state."""
    state = simulation.initial()
    before = state.server.model.clone()
    for index in range(rounds):
        naive.round(index, select(naive.seed, index, len(naive.data), cohort).tolist())
        expected = naive.network.state_dict()
        state, _ = simulation.advance(state)
        for name, own in simulation.network.layout.views(state.server.model).items():
            torch.testing.assert_close(
                own, expected[name], rtol=tolerance, atol=tolerance / 10, msg=lambda m, n=name: f"{n}: {m}"
            )
    assert not torch.allclose(before, state.server.model, atol=1e-2)  # there was something to compare
    return state


def assert_as_naive(
    make_experiment,
    network,
    naive: Callable[..., NaiveServer],
    *,
    local: Mapping[str, object] = {},
    clients: NaiveClients | None = None,
    executors: Sequence[str] = ("in_process", "vectorized"),
    rounds: int = 3,
    tolerance: float = 1e-5,
    seed: int = 0,
    cohort: int = COHORT,
    **settings,
) -> None:
    """Runs of a strategy equal a naive implementation's, with each executor (BatchNorm's in process only).

    Args:
        make_experiment: the fixture.
        network: builds the network; or its name in :data:`NETWORKS`.
        naive: the naive server, given network, data, clients and seed.
        local: how clients train.
        clients: the naive clients; None: those that train like that.
        executors: their names.
        rounds: number of rounds.
        tolerance: the largest relative difference.
        seed: the run's seed.
        cohort: clients per round.
        settings: further settings of the experiment.
    """
    build = NETWORKS.get(network, network)
    for executor in executors[:1] if build is batch_norm else executors:
        hardware = {"executor": executor}
        simulation = Simulation(
            make_experiment(
                network=build, local=local, clients_per_round=cohort, seed=seed, hardware=hardware, **settings
            )
        )
        arguments = network_of(simulation, build), data_of(simulation), clients or NaiveClients(**local), seed
        assert_equal_after(simulation, naive(*arguments), rounds, tolerance, cohort)


def final_model(experiment, rounds: int) -> torch.Tensor:
    return advanced(Simulation(experiment), rounds).server.model


def measured(network, simulation, own) -> tuple[float, float]:
    """Loss and accuracy of an ordinary network on some samples."""
    inputs, labels = simulation.dataset.inputs[own].float() / 255, simulation.dataset.targets[own]
    with torch.no_grad():
        logits = network.eval()(inputs)
    accuracy = (logits.argmax(1) == labels).double().mean().item()
    return torch.nn.functional.cross_entropy(logits, labels).item(), accuracy


def advanced(simulation: Simulation, rounds: int = 1) -> State:
    """The state after some rounds."""
    state = simulation.initial()
    for _ in range(rounds):
        state, _ = simulation.advance(state)
    return state
