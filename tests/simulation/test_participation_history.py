"""What rules of participation keep between rounds, and what they learn of a round."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedrun.config.build import option
from fedrun.config.config_class import config_class
from fedrun.experiment.participation.base import Participation, select
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.uploads.attacks.gaussian import Gaussian

from ..conftest import SIZES
from ..helpers.small_networks import data_of, mlp, network_of

CLOCK = {"speed": 100.0, "speed_cv": 1.0, "download": 1e4, "upload": 2e3, "bandwidth_cv": 1.0, "latency": 0.25}


@config_class
class Keeps(Participation):
    """Keeps the last outcome of every client, and the number of rounds."""

    def initial_history(self, clients):
        empty = torch.full((clients,), math.nan, dtype=torch.float64)
        return {"losses": empty, "seconds": empty, "samples": empty, "rounds": torch.zeros(1)}

    def next_history(self, history, outcome):
        assert float(history["rounds"]) == outcome.round
        columns = {name: history[name].clone() for name in ("losses", "seconds", "samples")}
        for name, column in columns.items():
            column[outcome.clients] = getattr(outcome, name).double()
        return {**columns, "rounds": history["rounds"].add_(1)}  # in place: it is a copy


def advanced(experiment, rounds: int = 1):
    simulation = Simulation(experiment)
    states = [simulation.initial()]
    for _ in range(rounds):
        states.append(simulation.advance(states[-1])[0])
    return simulation, states


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
@pytest.mark.parametrize("strategy", ["fedavg", "fedsoft"])
def test_a_rule_learns_losses_and_times(make_experiment, executor, strategy):
    """One step on all samples: the training loss is that of the broadcast model. T_k as in test_virtual_time.py."""
    clock = option("clock", "lognormal", **CLOCK)
    experiment = make_experiment(
        network=mlp,
        strategy=option("strategy", strategy),
        participation=Keeps(),
        clients_per_round=3,
        local={"epochs": 1, "batch_size": None},
        hardware={"executor": executor},
        clock=clock,
    )
    simulation, (before, after) = advanced(experiment)
    cohort = select(experiment.seed, 0, 6, 3).tolist()
    network, data, history = network_of(simulation, mlp), data_of(simulation), after.history
    model = 4 * len(simulation.network.vector)
    for client in range(6):
        if client not in cohort:
            assert math.isnan(history["losses"][client]) and math.isnan(history["seconds"][client])
            continue
        inputs, targets = data[client]
        assert history["samples"][client] == SIZES[client]
        losses = []  # FedSoft's clients start from one of several models
        for server in before.models:
            network.load_state_dict(simulation.network.tensors(server.model.clone()))
            losses.append(cross_entropy(network(inputs), targets).item())
        assert any(float(history["losses"][client]) == pytest.approx(loss, rel=1e-5) for loss in losses)
        if strategy == "fedavg":
            devices = clock.devices(6, experiment.seed)
            down, up, speed = (float(column[client]) for column in (devices.down, devices.up, devices.speed))
            taken = 0.5 + model / down + SIZES[client] / speed + model / up
            assert float(history["seconds"][client]) == pytest.approx(taken)
        else:
            assert float(history["seconds"][client]) > 0


def test_earlier_states_keep_their_history(make_experiment):
    simulation, states = advanced(make_experiment(participation=Keeps(), clients_per_round=2), 3)
    assert [float(state.history["rounds"]) for state in states] == [0, 1, 2, 3]
    again, _ = simulation.advance(states[1])
    for name, kept in states[2].history.items():
        assert torch.equal(again.history[name].nan_to_num(), kept.nan_to_num())


def test_a_history_with_gradients_has_no_graph_of_earlier_rounds(make_experiment):
    @config_class
    class Learns(Participation):
        def initial_history(self, clients):
            return {"w": torch.ones(2, requires_grad=True)}

        def next_history(self, history, outcome):
            assert not history["w"].requires_grad
            return {"w": history["w"].requires_grad_() * 2}

    _, states = advanced(make_experiment(participation=Learns(), clients_per_round=2), 3)
    assert [state.history["w"].tolist() for state in states] == [[1, 1], [2, 2], [4, 4], [8, 8]]


@config_class
class Sometimes(Keeps):
    """Two clients in the first round, nobody after that."""

    def participants(self, candidates):
        return torch.tensor([[0, 4], []][candidates.round], dtype=torch.int64), {}


def test_a_round_without_participants_has_an_outcome(make_experiment):
    _, (_, first, second) = advanced(make_experiment(participation=Sometimes(), clients_per_round=2), 2)
    assert (first.history["samples"] > 0).nonzero().flatten().tolist() == [0, 4]
    assert torch.equal(first.history["samples"].nan_to_num(), second.history["samples"].nan_to_num())
    assert float(second.history["rounds"]) == 2


def test_a_late_client_has_no_outcome(make_experiment):
    """Two clients with equal devices start; the server uses the first upload, of the client with fewer samples."""
    experiment = make_experiment(
        participation=Sometimes(),
        clients_per_round=1,
        clock=option("clock", "lognormal", **{**CLOCK, "speed_cv": 0.0, "bandwidth_cv": 0.0}),
        aggregation=option("aggregation", "deadline", over_selection=2.0),
    )
    _, (_, after) = advanced(experiment)
    assert (after.history["samples"] > 0).nonzero().flatten().tolist() == [0]


def test_a_client_whose_upload_is_not_finite_has_no_outcome(make_experiment, monkeypatch):
    """The others have the losses and times of a round without an attack."""
    monkeypatch.setattr(Gaussian, "tampered", lambda _, model, __, ___: model + math.inf)
    attack, clock = option("attack", "gaussian", share=0.34), option("clock", "lognormal", **CLOCK)
    _, (_, usual) = advanced(make_experiment(participation=Keeps(), clients_per_round=6, clock=clock))
    experiment = make_experiment(participation=Keeps(), clients_per_round=6, clock=clock, attack=attack)
    _, (_, after) = advanced(experiment)
    attackers = attack.attackers(6, experiment.seed)
    assert len(attackers) == 2
    for name in ("samples", "losses", "seconds"):
        expected = usual.history[name].clone()
        assert expected.isfinite().all()
        expected[attackers] = math.nan
        assert torch.equal(after.history[name].nan_to_num(-1.0), expected.nan_to_num(-1.0))


@pytest.mark.parametrize(
    ("initial", "after", "message"),
    [
        (None, None, "initial_history: returned NoneType; allowed: a dictionary of tensors on the CPU, by name"),
        ({"a": torch.zeros(2), "b": 1.0}, None, "initial_history: returned float as 'b'; allowed: a dictionary of "),
        ({0: torch.zeros(2)}, None, r"initial_history: returned float32 \[2\] on cpu as 0; allowed: a dictionary of "),
        (
            {"a": torch.zeros(2, device="meta")},
            None,
            r"initial_history: returned float32 \[2\] on meta as 'a'; allowed: a dictionary of tensors on the CPU, ",
        ),
        (
            {"a": torch.zeros(2)},
            {"a": torch.nn.Parameter(torch.zeros(2))},
            "next_history: returned Parameter as 'a'; allowed: a dict",
        ),
        (
            {"a": torch.zeros(2)},
            None,
            "next_history: returned NoneType; allowed: a dictionary of tensors on the CPU, by name",
        ),
        ({"a": torch.zeros(2)}, {}, "next_history: returned the tensors none; allowed: the tensors a"),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(3)}, r"returned float32 \[3\] as a; allowed: float32 \[2\]"),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2).double()}, r"returned float64 \[2\] as a; allowed: float32 \[2\]"),
    ],
)
def test_a_rule_that_keeps_something_else(make_experiment, initial, after, message):
    @config_class
    class Own(Participation):
        def initial_history(self, clients):
            return initial

        def next_history(self, history, outcome):
            return after

    with pytest.raises(InputError, match=rf"Own\.{message}" if message[0] != "r" else message):
        advanced(make_experiment(participation=Own()))
