"""Which executor works, and what is said about it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from torch import nn

from fedrun.config import option
from fedrun.population import Population
from fedrun.simulation import Simulation


def refused(spec):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.AlphaDropout(0.1))
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(6, spec.classes)))


def test_a_refusal_is_told_once_a_run(make_experiment, caplog, default_experiment):
    """Thresholds and local tuning, in every evaluation, fall back as the federated training does, without a word."""
    experiment = make_experiment(
        network=refused,
        population=Population(unseen_clients=2, test_share=0.4, flipped_share=0.0, seed=None),
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
