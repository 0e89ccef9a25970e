"""Runs whose server does not wait for all participants, against naive servers and their own interruption."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.strategy import Strategy
from fedrun.runs.folder import METRICS
from fedrun.runs.metrics_file import read_rows
from fedrun.runs.run import run
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError

from ..conftest import SIZES
from ..helpers.interrupted_runs import Interrupts
from ..helpers.naive_averaging import NaiveClients, NaiveFedAvg
from ..helpers.small_networks import batch_norm, data_of, mlp, network_of

CLOCK = option("clock", "lognormal", speed=20.0, speed_cv=1.5, download=1e4, upload=5e3, bandwidth_cv=0.5, server=0.25)


def client_seconds(simulation: Simulation) -> list[float]:
    """T_k of one epoch and of a model of 4 bytes a number both ways, by ordinary arithmetic."""
    devices, model = simulation.devices, 4 * simulation.network.layout.size
    columns = zip(SIZES, devices.speed, devices.down, devices.up, devices.latency, strict=True)
    return [float(2 * wait + model / down + n / speed + model / up) for n, speed, down, up, wait in columns]


def states_of(simulation: Simulation, count: int):
    states, metrics = [simulation.initial()], []
    for _ in range(count):
        state, row = simulation.advance(states[-1])
        states.append(state)
        metrics.append(row)
    return states, metrics


def float_tensors(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items() if tensor.is_floating_point()}


@pytest.mark.parametrize("build", [mlp, batch_norm], ids=["mlp", "batch_norm"])
@pytest.mark.parametrize("name", ["fedbuff", "fedasync"])
def test_steps_are_those_of_an_ordinary_loop(make_experiment, name, build):
    """Networks that train from the version they started at, and a server that keeps every version."""
    settings = {"buffer": 2} if name == "fedbuff" else {"alpha": 0.7}
    experiment = make_experiment(
        network=build,
        clock=CLOCK,
        clients_per_round=4,
        aggregation=option("aggregation", name, **settings),
        local={"lr_decay": 0.9},
    )
    simulation = Simulation(experiment)
    states, metrics = states_of(simulation, 7)
    seconds = client_seconds(simulation)
    naive = NaiveFedAvg(network_of(simulation, build), data_of(simulation), NaiveClients(lr_decay=0.9), experiment.seed)
    trained = {item for item, _ in naive.network.named_parameters()}
    versions, earlier = [float_tensors(naive.network)], {}
    for version in range(7):
        x, uploads = versions[-1], []
        cohort = simulation.uploads(states[version]).clients.tolist()
        for client in cohort:
            # a client that was not in training before has started in this step
            start = earlier.get(client, version)
            network = copy.deepcopy(naive.network)
            network.load_state_dict(versions[start], strict=False)
            server = replace(naive, network=network)
            uploads.append((client, start, float_tensors(server.trained(client, start)[0])))
        running = {item.client: item for item in states[version + 1].training.starts}
        earlier = {client: item.version for client, item in running.items()}
        total = sum(SIZES[client] for client in cohort)
        after = {}
        for item, value in x.items():
            after[item] = torch.zeros_like(value)
            for client, start, y in uploads:
                tau = version - start
                if name == "fedasync":
                    share = 0.7 * (1 + tau) ** -0.5
                    one = (1 - share) * value + share * y[item]
                elif item in trained:
                    one = value + (1 + tau) ** -0.5 * (y[item] - versions[start][item])
                else:
                    one = y[item]
                after[item] += SIZES[client] / total * one
        versions.append(after)
        for item, own in simulation.network.layout.views(states[version + 1].server.model).items():
            torch.testing.assert_close(own, after[item], rtol=1e-4, atol=1e-5, msg=lambda m, n=item: f"{n}: {m}")
        stale = [version - start for _, start, _ in uploads]
        assert metrics[version]["clients/staleness"] == pytest.approx(sum(stale) / len(stale))
    assert max(row["clients/staleness_max"] for row in metrics) > 1
    first = states[1].training.starts
    assert {round(item.arrival, 6) for item in first if item.version == 0} <= {
        round(time + begin, 6) for time in seconds for begin in (0.0, *seconds)
    }


def test_without_staleness_a_step_is_a_synchronous_round(make_experiment):
    """If all clients train and the buffer holds all, every step has the uploads of one version."""
    common = {"network": mlp, "clock": CLOCK, "clients_per_round": 6}
    waits = Simulation(make_experiment(**common))
    buffered = Simulation(make_experiment(**common, aggregation=option("aggregation", "fedbuff", buffer=6)))
    (expected, _), (found, metrics) = states_of(waits, 3), states_of(buffered, 3)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one.server.model, other.server.model)
        assert one.totals == replace(other.totals, virtual_seconds=pytest.approx(one.totals.virtual_seconds))
    assert [row["clients/staleness"] for row in metrics] == [0, 0, 0]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "turbosvm", "fedper"])
def test_a_round_with_a_deadline_is_that_of_the_clients_in_time(make_experiment, name):
    """Clients have known times; late ones receive the model, and nothing else changes."""
    strategy = build_experiment(compose([f"strategy={name}", "tracking=none"])).strategy
    common = {"network": mlp, "clock": CLOCK, "strategy": strategy}
    waiting = Simulation(make_experiment(**common, clients_per_round=6))
    before = waiting.initial()
    runner, phase = waiting.round_runner(before), waiting.phase(before)
    kept = phase.client.private(phase.network.layout)
    size = phase.network.layout.size - (0 if kept is None else int(kept.sum()))
    devices, more = waiting.devices, phase.network.layout.trainable if name == "scaffold" else 0  # control variates
    sent = received = 4 * (size + more)
    taken = [
        0.1 + received / float(devices.down[k]) + SIZES[k] / float(devices.speed[k]) + sent / float(devices.up[k])
        for k in range(6)
    ]
    deadline = sorted(taken)[3] + 1e-6
    rule = option("aggregation", "deadline", over_selection=1.0, seconds=deadline)
    timed = Simulation(make_experiment(**common, clients_per_round=6, aggregation=rule))
    after, metrics = timed.advance(timed.initial())
    in_time = torch.tensor([k for k in waiting.uploads(before).clients.tolist() if taken[k] <= deadline])
    result = runner.run(before, in_time, lambda done: None)
    assert metrics["clients/late"] == 2
    assert metrics["train/loss"] == pytest.approx(result.loss)
    assert after.totals.virtual_seconds == pytest.approx(deadline + 0.25)
    assert after.totals.bytes_up == 4 * sent
    assert (after.totals.params_down, after.totals.bytes_down) == (6 * received // 4, 6 * received)


def test_a_round_in_which_nobody_is_in_time_changes_nothing(make_experiment):
    rule = option("aggregation", "deadline", seconds=1.0, failure=1 - 1e-12)
    simulation = Simulation(make_experiment(network=mlp, clock=CLOCK, clients_per_round=3, aggregation=rule))
    before = simulation.initial()
    after, metrics = simulation.advance(before)
    assert after.round == 1
    assert torch.equal(before.server.model, after.server.model)
    assert metrics.keys() == {"clients/late", "time/round_s"}  # no loss, and no step of the server
    assert metrics["clients/late"] == 4  # ⌈1.3 · 3⌉
    assert after.totals.bytes_down == 4 * 4 * simulation.network.layout.size
    assert after.totals.bytes_up == 0
    assert after.totals.virtual_seconds == pytest.approx(1.25)


def test_executors_agree_on_stale_uploads(make_experiment):
    models = []
    for executor in ("in_process", "vectorized"):
        experiment = make_experiment(
            network=mlp,
            clock=CLOCK,
            clients_per_round=5,
            aggregation=option("aggregation", "fedbuff", buffer=3),
            strategy=Strategy(client=option("strategy/client", "fedprox"), server=option("strategy/server", "fedavgm")),
            compression=option("compression", "topk", fraction=0.2),
            hardware={"executor": executor},
        )
        states, _ = states_of(Simulation(experiment), 6)
        models.append(states[-1].server.model)
    torch.testing.assert_close(*models, rtol=1e-4, atol=1e-5)


def test_models_that_nobody_trains_from_are_not_kept(make_experiment):
    rule = option("aggregation", "fedasync")
    simulation = Simulation(
        make_experiment(network=mlp, clock=replace(CLOCK, server=0.0), clients_per_round=3, aggregation=rule)
    )
    states, _ = states_of(simulation, 12)
    for state in states[1:]:
        assert set(state.training.received) == {start.version for start in state.training.starts}
        assert len(state.training.starts) == 2  # the third starts at the beginning of the next step
    moved = states[-1].to("meta").training
    assert moved.starts == states[-1].training.starts
    assert {vector.device.type for received in moved.received.values() for vector in received.values()} == {"meta"}


SETTING = (
    "clock=tiers",
    "rounds=9",
    "partition.clients=6",
    "clients_per_round=4",
    "model.hidden=[8]",
    "hardware.threads=1",
    "tracking=none",
    "evaluation.train_clients=false",
)


@pytest.mark.parametrize(
    "rule",
    [
        ("aggregation=fedbuff", "aggregation.buffer=2", "strategy=fedadam"),
        ("aggregation=fedasync", "strategy/client=fedprox"),
        ("aggregation=fedbuff", "aggregation.buffer=3", "strategy=fedper", "compression=topk"),
        ("aggregation=deadline", "aggregation.seconds=1.5"),
    ],
    ids=" ".join,
)
def test_an_interrupted_run_continues_with_the_clients_in_training(tmp_path: Path, plain, rule) -> None:
    whole, parted = (
        build_experiment(compose([*SETTING, *rule, f"output_dir={tmp_path / name}"])) for name in ("whole", "parted")
    )
    run(whole)
    for round in (3, 6):
        with pytest.raises(KeyboardInterrupt):
            run(parted, [Interrupts(round)])
    run(parted)
    rows = [
        [
            {key: value for key, value in row.items() if not key.startswith("time/") or key == VIRTUAL_SECONDS}
            for row in read_rows(experiment.folder / METRICS)
        ]
        for experiment in (whole, parted)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 10
    ends = [row[VIRTUAL_SECONDS] for row in rows[0]]
    assert ends == sorted(ends)


@pytest.mark.slow
def test_two_processes_make_the_same_steps(fedrun, tmp_path: Path) -> None:
    """The ranks share the uploads of a step, which start from different models."""
    rule = ("aggregation=fedbuff", "aggregation.buffer=3", "hardware.executor=in_process", "display=none")
    alone, shared = (tmp_path / name for name in ("alone", "shared"))
    alone.mkdir()
    shared.mkdir()
    assert fedrun(*SETTING, *rule, folder=alone).status == 0
    assert fedrun(*SETTING, *rule, "hardware.processes=2", folder=shared).status == 0
    (one,), (two,) = ([read_rows(path) for path in folder.rglob(METRICS)] for folder in (alone, shared))
    for first, second in zip(one, two, strict=True):
        assert first["test/loss"] == pytest.approx(second["test/loss"], rel=1e-4)
        assert first[VIRTUAL_SECONDS] == second[VIRTUAL_SECONDS]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("clock=none",), "clock=lognormal"),
        (("strategy=scaffold",), "strategy/client=scaffold"),
        (("strategy=fedacg",), None),
        (("strategy=fedcm",), "strategy/server=fedcm"),
        (("strategy=median",), "strategy/server=median"),
        (("strategy=turbosvm",), "strategy/server=turbosvm"),
        (("strategy=ifca",), "strategy/clustering=ifca"),
        (("strategy=fedconcat",), "strategy/clustering"),
        (("strategy=solo",), "strategy/client=solo"),
        (("strategy=centralized",), "population.pooled=true"),
        (("strategy=fedumf",), "strategy/"),
        (("strategy=mwfed",), "strategy/server=mwfed"),
        (("strategy=norm_clipping",), "strategy/server"),
        (("strategy=fedala",), "strategy/client=fedala"),
        (("privacy=user_level", "privacy.noise_multiplier=1"), "privacy=user_level"),
        (("secure_sum=fixed_point",), "secure_sum=fixed_point"),
        (("compression=sign", "compression.rule=vote", "compression.memory=none"), "compression=sign"),
        (("participation=bernoulli",), "participation=bernoulli"),
        (("attack=alie", "attack.share=0.2"), "attack=alie"),
        (("attack=sign_flip", "attack.share=0.2"), None),
        (("evaluation.client_means=true",), "evaluation.client_means=true"),
        (("aggregation.buffer=20",), "aggregation.buffer=20"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_fedbuff_rejects_what_needs_rounds(settings, named) -> None:
    config = compose([*SETTING, "aggregation=fedbuff", "aggregation.buffer=3", *settings])
    if named is None:
        simulation = Simulation(build_experiment(config))
        states_of(simulation, 2)
        return
    with pytest.raises(InputError) as error:
        Simulation(build_experiment(config))
    message = str(error.value)
    assert named in message
    assert "aggregation" in message
    assert "\n" not in message
