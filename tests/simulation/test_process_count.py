"""How many processes and threads a run has where nobody says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.models.base import encoder_and_head
from fedrun.runs.division import divide
from fedrun.runs.run import run
from fedrun.simulation.first_phase import first_phase
from fedrun.simulation.prepared_federation import prepare_federation
from fedrun.simulation.process_count import automatic_processes, may_be_divided
from fedrun.simulation.round_work import RoundWork
from fedrun.simulation.simulation import Simulation
from fedrun.system.checksums import write_sealed

SCAFFOLD = Strategy(client=option("strategy/client", "scaffold"), server=option("strategy/server", "scaffold"))

LASTING = Strategy(client=option("strategy/client", "sgd_lasting_momentum"), server=option("strategy/server", "fedavg"))

PIXELS, CLASSES = 16, 3

FREE = {"threads": None, "executor": "in_process"}

MUCH = {"epochs": None, "steps": 1000}
"""A thousand steps of each client: more than 0.4 s for each by the rule."""


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("fedrun.simulation.process_count.cores", lambda: 4)
    monkeypatch.setattr("fedrun.execution.hardware.cores", lambda: 4)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def perceptron(units: int) -> Any:
    return lambda spec: encoder_and_head(
        nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, units)), nn.Linear(units, spec.classes)
    )


def processes(experiment: Any) -> int:
    return automatic_processes(experiment, prepare_federation(experiment))


def test_the_work_of_a_round(make_experiment: Any) -> None:
    """Clients of 3, 12, 8, 5, 20 and 12 samples in batches of 4 make 1, 3, 2, 2, 5 and 3 steps; three take part."""
    experiment = make_experiment(network=perceptron(10), clients_per_round=3)
    phase = first_phase(experiment, prepare_federation(experiment), torch.device("cpu"))
    work = RoundWork.of(phase)
    assert work.step == 4 * (10 * PIXELS + 10 * CLASSES)
    assert work.gradients == pytest.approx(3 * 16 / 6)
    assert work.seconds == pytest.approx(8 * (4e-4 + 3 * work.step / 4e10))


def test_steps_of_several_gradients(make_experiment: Any) -> None:
    """Per-FedAvg's step processes two batches, once each; FedSAM's processes one batch twice."""
    for name, steps, gradients in (("perfedavg", (1, 2, 1, 1, 3, 2), 2), ("fedsam", (1, 3, 2, 2, 5, 3), 2)):
        client = option("strategy/client", name)
        strategy = Strategy(client=client, server=option("strategy/server", "fedavg"))
        experiment = make_experiment(network=perceptron(10), strategy=strategy)
        phase = first_phase(experiment, prepare_federation(experiment), torch.device("cpu"))
        assert RoundWork.of(phase).gradients == pytest.approx(phase.cohort_size * gradients * sum(steps) / 6)


def test_whole_clients_as_batches(make_experiment: Any) -> None:
    experiment = make_experiment(network=perceptron(10), local={"batch_size": None, "epochs": 2}, clients_per_round=6)
    phase = first_phase(experiment, prepare_federation(experiment), torch.device("cpu"))
    assert RoundWork.of(phase) == RoundWork(step=10 * (10 * PIXELS + 10 * CLASSES), gradients=12.0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"clients_per_round": 6, "rounds": 100}, 3),  # two clients each
        ({"clients_per_round": 1.0, "rounds": 100}, 3),
        ({"clients_per_round": 3, "rounds": 100}, 1),
        ({"clients_per_round": 6, "rounds": 3}, 1),  # too short a run
        ({"clients_per_round": 6, "rounds": 10_000, "local": {"epochs": None, "steps": 10}}, 1),  # too short a round
        ({"clients_per_round": 6, "rounds": 100, "strategy": SCAFFOLD}, 1),  # clients have states
        ({"clients_per_round": 6, "rounds": 100, "strategy": LASTING, "local": {**MUCH, "momentum": 0.9}}, 1),
        ({"clients_per_round": 6, "rounds": 100, "strategy": LASTING, "local": {**MUCH, "momentum": 0.0}}, 3),
        ({"clients_per_round": 6, "rounds": 100, "compression": option("compression", "topk")}, 1),  # errors
        ({"clients_per_round": 6, "rounds": 100, "compression": option("compression", "topk", memory="none")}, 3),
    ],
)
def test_the_number_of_processes(make_experiment: Any, changes: dict[str, Any], expected: int) -> None:
    assert (
        processes(make_experiment(**{"network": perceptron(4), "local": MUCH, "hardware": FREE, **changes})) == expected
    )


@pytest.mark.parametrize("choice", ["strategy=fesem", "evaluation.client_means=true"])
def test_clients_that_keep_their_last_model_have_states(make_experiment: Any, choice: str) -> None:
    chosen = build_experiment(compose([choice]).config)
    parts = {"strategy": chosen.strategy, "evaluation": chosen.evaluation}
    long = {"network": perceptron(4), "local": MUCH, "hardware": FREE, "clients_per_round": 6, "rounds": 100}
    assert processes(make_experiment(**long, **parts)) == 1


@pytest.mark.parametrize("hardware", [{"threads": 1}, {"device": "cuda"}, {"executor": "vectorized"}], ids=str)
def test_settings_for_which_one_process_is_right(make_experiment: Any, hardware: dict[str, Any]) -> None:
    assert may_be_divided(make_experiment(hardware=FREE))
    assert not may_be_divided(make_experiment(hardware={**FREE, **hardware}))


def test_small_perceptrons_train_side_by_side_in_one_process(make_experiment: Any) -> None:
    """Also where three processes would be used for clients one after another; with 2 ** 18 weights they are."""
    chosen = {"clients_per_round": 6, "rounds": 100, "local": MUCH, "hardware": {"threads": None}}
    for units, expected in ((4, 1), (2**18 // PIXELS, 3)):
        experiment = make_experiment(network=perceptron(units), **chosen)
        assert may_be_divided(experiment)
        assert processes(experiment) == expected
    in_process_only = Strategy(client=option("strategy/client", "fedntd"), server=option("strategy/server", "fedavg"))
    assert processes(make_experiment(network=perceptron(4), strategy=in_process_only, **chosen)) == 3


def test_side_by_side_the_batches_of_all_clients_count_for_threads(make_experiment: Any) -> None:
    """A step of one client has 12 x 16 000 x 19 multiply-adds, 3.6 million, and of six clients 22 million."""
    chosen = {"network": perceptron(16_000), "local": {"batch_size": None}, "clients_per_round": 6}
    for executor, threads in (("in_process", 1), ("vectorized", 4), (None, 4)):
        Simulation(make_experiment(**chosen, hardware={"threads": None, "executor": executor}))
        assert torch.get_num_threads() == threads


def test_the_users_number_of_threads_is_respected(make_experiment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert not may_be_divided(make_experiment(hardware=FREE))
    Simulation(make_experiment(network=perceptron(2), hardware=FREE))
    assert torch.get_num_threads() == 3
    Simulation(make_experiment(network=perceptron(2), hardware={"threads": 2}))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("units", "threads"), [(2, 1), (90_000, 4)])
def test_small_networks_get_one_thread(make_experiment: Any, units: int, threads: int) -> None:
    Simulation(make_experiment(network=perceptron(units), hardware=FREE, local={"batch_size": None}))
    assert torch.get_num_threads() == threads


def test_an_interrupted_run_continues_with_its_number_of_processes(make_experiment: Any, tmp_path: Any) -> None:
    chosen = {"hardware": FREE, "clients_per_round": 6, "output_dir": str(tmp_path), "display": "none"}
    long = make_experiment(**chosen, local=MUCH, rounds=100)
    assert divide(long)[0] == 3
    short = make_experiment(**chosen, rounds=1, local={"epochs": None, "steps": 1})
    assert divide(short)[0] == 1
    run(short)
    assert divide(short) == (1, None)  # it is finished
    done, waiting = short.folder / "checkpoint.pt", long.folder / "checkpoint.pt"
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(done.read_bytes())
    assert divide(long)[0] == 1  # a checkpoint of one process
    content = torch.load(waiting, weights_only=True)
    with write_sealed(waiting) as file:
        torch.save({**content, "processes": 2}, file)
    for elsewhere in ({}, {"threads": 1}):  # a machine or a setting for which the rule starts one process
        changed = replace(long, hardware=replace(long.hardware, **elsewhere))
        assert divide(changed)[0] == 2
    assert divide(replace(long, hardware=replace(long.hardware, processes=1)))[0] == 1
    waiting.write_bytes(b"damaged")
    assert divide(long)[0] == 3  # the run refuses it later, and says why
