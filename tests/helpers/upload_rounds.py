"""Rounds whose uploads are transformed, and what clients would send without that."""

from __future__ import annotations

import torch

from fedrun.config.build import option
from fedrun.experiment.strategy import Strategy
from fedrun.simulation.simulation import Simulation

from .small_networks import mlp

EXECUTORS = ["in_process", "vectorized"]


def compression(name, **settings):
    return option("compression", name, **settings)


def private(name="user_level", **settings):
    return option("privacy", name, **{"noise_multiplier": 0.0, **settings})


def strategy(name, server=None):
    return Strategy(client=option("strategy/client", name), server=option("strategy/server", server or name))


def rounds(experiment, count=1):
    """The simulation, its states after 0, 1, .. rounds, and the last round's metrics."""
    simulation = Simulation(experiment)
    states, metrics = [simulation.initial()], {}
    for _ in range(count):
        state, metrics = simulation.advance(states[-1])
        states.append(state)
    return simulation, states, metrics


def displacements(make_experiment, **changes):
    """What each of six clients moves by in the first round, ``[6, T]``, found by letting each train alone."""
    simulation = Simulation(make_experiment(network=mlp, clients_per_round=6, **changes))
    state, moved = simulation.initial(), []
    runner = simulation.round_runner(state)
    everyone = simulation.uploads(state).clients
    for client in range(6):
        work = runner.run(state, everyone[everyone == client], lambda done: None)
        moved.append(work.accepted[0].mean["model"] - state.server.model)
    return torch.stack(moved), state.server.model
