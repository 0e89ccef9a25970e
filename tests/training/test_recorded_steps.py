"""Recorded steps and forward passes give what the same work gives without a recording."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import fedrun
from fedrun.strategies.client import ClientStrategy

from ..helpers.graphs_on_cpu import GraphsOnCpu

SETTING = ("partition.clients=4", "clients_per_round=3", "local.batch_size=64", "local.lr=0.05", "tracking=none")
"""Of the clients in a round two at least were in the one before; forward passes are recorded in the third round."""

CASES = {
    "fedavg": (),
    "a rate per round": ("local.lr_decay=0.5",),
    "a linear correction": ("strategy=fedprox",),
    "client state": ("strategy=scaffold",),
    "a loss with constants": ("strategy=fedlc",),
    "reference models": ("strategy=moon",),
    "personal entries": ("strategy=fedper",),
    "momentum": ("local.momentum=0.9", "local.weight_decay=0.01"),
    "adam, its state kept": ("local.optimizer=adam", "strategy=fedbabu", "local.max_gradient_norm=1.0"),
    "bfloat16": ("local.precision=bfloat16", "evaluation.precision=bfloat16"),
    "batch normalisation": ("model=custom", f"model.target={__name__}.normalised"),
    "dropout": ("model.dropout=0.5",),
    "repaired": ("local.repair_nonfinite=true",),
}


def normalised(spec):
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return nn.Sequential(OrderedDict(encoder=encoder, head=nn.Linear(144, spec.classes)))


def simulated(overrides, graphs):
    simulation = fedrun.Simulation(fedrun.build_experiment(fedrun.compose([*SETTING, *overrides]).config))
    simulation.network.cuda_graphs = graphs
    state, rows = simulation.initial(), []
    for _ in range(4):
        state, metrics = simulation.advance(state)
        rows.append({**metrics, **simulation.test(state)})
    return state, rows


@pytest.mark.parametrize("case", CASES)
def test_recorded_steps_equal_others(case):
    overrides = ("hardware.executor=in_process", *CASES[case])
    graphs = GraphsOnCpu()
    (state, rows), (expected, expected_rows) = simulated(overrides, graphs), simulated(overrides, None)
    assert graphs.captures >= 2  # steps and forward passes
    torch.testing.assert_close(state.models[0].model, expected.models[0].model, rtol=1e-5, atol=1e-6)
    for row, of_others in zip(rows, expected_rows, strict=True):
        assert row.keys() == of_others.keys()
        for name in row:
            if not name.startswith("time/"):
                assert row[name] == pytest.approx(of_others[name], rel=1e-4), name


@pytest.mark.parametrize("strategy", ["fedsam", "fedrep"])
def test_steps_that_change_from_batch_to_batch_are_not_recorded(strategy):
    graphs = GraphsOnCpu()
    simulated((f"strategy={strategy}", "hardware.executor=in_process"), graphs)
    assert [key[0] for key in graphs._cached] == ["evaluate"]


@dataclass(frozen=True)
class Weighted(ClientStrategy):
    """Cross-entropy with a weight per class."""

    weights: list[float] | tuple[float, ...]

    def loss(self, outputs, targets, constants):
        return torch.tensor(self.weights)[targets] * super().loss(outputs, targets, constants)


@pytest.mark.parametrize(("kind", "recorded"), [(tuple, 1), (list, 0)])
def test_steps_of_a_strategy_without_a_hash_are_not_recorded(kind, recorded):
    models = []
    for graphs in (GraphsOnCpu(), None):
        experiment = fedrun.build_experiment(fedrun.compose([*SETTING, "hardware.executor=in_process"]).config)
        client = Weighted(kind([0.5] * 5 + [2.0] * 5))
        simulation = fedrun.Simulation(replace(experiment, strategy=replace(experiment.strategy, client=client)))
        simulation.network.cuda_graphs = graphs
        state, _ = simulation.advance(simulation.initial())
        models.append(state.server.model)
        assert graphs is None or [key[0] for key in graphs._cached].count("steps") == recorded
    torch.testing.assert_close(*models, rtol=1e-5, atol=1e-6)


def test_the_steps_of_a_former_rate_are_released_at_once():
    """Without Python's garbage collector, which does not know how much memory of a GPU they hold."""
    chosen = ("hardware.executor=in_process", "local.lr_decay=0.5")
    simulation = fedrun.Simulation(fedrun.build_experiment(fedrun.compose([*SETTING, *chosen]).config))
    graphs = simulation.network.cuda_graphs = GraphsOnCpu()
    state, _ = simulation.advance(simulation.initial())
    (first,) = (weakref.ref(kept) for key, (_, kept) in graphs._cached.items() if key[0] == "steps")
    gc.disable()
    try:
        simulation.advance(state)
        assert first() is None
    finally:
        gc.enable()
    assert [key[0] for key in graphs._cached].count("steps") == 1


def test_clients_that_adapt_the_model_first_share_recorded_steps():
    """MaxFL's clients train some steps before they measure their loss: two recordings serve all clients."""
    chosen = ("strategy=maxfl", "strategy.client.tuning_steps=2", "appeal=warmup", "appeal.steps=3")
    graphs = GraphsOnCpu()
    simulated(("hardware.executor=in_process", *chosen), graphs)
    assert [key[0] for key in graphs._cached].count("steps") == 2
