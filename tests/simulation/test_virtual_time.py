"""Virtual time: how long rounds take on the clients' devices."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.config.config_class import config_class
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.participation.base import Participation, select
from fedrun.runs.folder import METRICS
from fedrun.runs.metrics_file import read_rows
from fedrun.runs.run import run
from fedrun.runs.summary import beyond_rows
from fedrun.simulation.costs import Costs
from fedrun.simulation.simulation import Simulation

from ..conftest import SIZES
from ..helpers.interrupted_runs import Interrupts
from ..helpers.small_networks import mlp
from ..strategies.test_lora import A, B, layered

SETTING = (
    "rounds=4",
    "partition.clients=6",
    "clients_per_round=3",
    "model.hidden=[8]",
    "local.batch_size=40",
    "hardware.threads=1",
    "tracking=none",
    "evaluation.train_clients=false",
)

CLOCK = {"speed": 100.0, "speed_cv": 1.0, "download": 1e4, "upload": 2e3, "bandwidth_cv": 1.0, "latency": 0.25}


def times(experiment, rounds: int) -> list[float]:
    """The virtual seconds after 0, 1, .. rounds."""
    simulation = Simulation(experiment)
    states = [simulation.initial()]
    for _ in range(rounds):
        states.append(simulation.advance(states[-1])[0])
    return [state.totals.virtual_seconds for state in states]


@config_class
class Nobody(Participation):
    """In odd rounds nobody takes part."""

    def participants(self, candidates):
        cohort, metrics = super().participants(candidates)
        return cohort[: 0 if candidates.round % 2 else None], metrics


def test_a_round_without_participants_takes_the_servers_time(make_experiment):
    clock = option("clock", "lognormal", server=2.0, **CLOCK)
    start, first, second = times(make_experiment(network=mlp, clock=clock, participation=Nobody()), 2)
    assert start == 0 < first
    assert second - first == pytest.approx(2.0)


@pytest.mark.parametrize("executor", ["in_process", "vectorized"])
def test_a_round_lasts_until_the_slowest_participant_has_sent(make_experiment, executor):
    """T_k by ordinary arithmetic: the model of 4 bytes a number both ways, two epochs, and 2 s of the server."""
    clock = option("clock", "lognormal", server=2.0, **CLOCK)
    experiment = make_experiment(
        network=mlp, clock=clock, clients_per_round=3, local={"epochs": 2}, hardware={"executor": executor}
    )
    devices, now, expected = clock.devices(6, experiment.seed), 0.0, [0.0]
    model = 4 * len(Simulation(experiment).network.vector)
    for t in range(3):
        taken = []
        for client in select(experiment.seed, t, 6, 3).tolist():
            down, up, speed = (float(column[client]) for column in (devices.down, devices.up, devices.speed))
            taken.append(0.25 + model / down + 2 * SIZES[client] / speed + 0.25 + model / up)
        now += 2.0 + max(taken)
        expected.append(now)
    assert times(experiment, 3) == pytest.approx(expected, rel=1e-9)


def test_compressed_uploads_take_less_time(make_experiment):
    """Top-k with k = 1: 8 bytes and the count instead of the model; equal devices, so that only the size counts."""
    clock = option("clock", "lognormal", **{**CLOCK, "speed_cv": 0.0, "bandwidth_cv": 0.0})
    plain = make_experiment(network=mlp, clock=clock, clients_per_round=6)
    sparse = make_experiment(
        network=mlp, clock=clock, clients_per_round=6, compression=option("compression", "topk", fraction=1e-9)
    )
    simulation = Simulation(sparse)
    saved = 4 * len(simulation.network.vector) - simulation.advance(simulation.initial())[0].totals.bytes_up / 6
    assert times(plain, 1)[1] - times(sparse, 1)[1] == pytest.approx(saved / CLOCK["upload"])


def test_the_order_in_which_participants_finish_does_not_matter(make_experiment):
    """Clients of rank 1 send less than those of rank 2; each is timed with its own bytes and its own samples."""
    strategy = replace(build("fedavg").strategy, client=option("strategy/client", "lora_ranks", ranks=(1, 2)))
    experiment = make_experiment(network=layered, strategy=strategy, clients_per_round=6)
    simulation = Simulation(experiment)
    state = simulation.initial()
    runner, phase = simulation.round_runner(state), simulation.phase(state)
    cohort = simulation.uploads(state).clients
    result = runner.run(state, cohort, lambda done: None)
    clock = option("clock", "lognormal", **{**CLOCK, "speed_cv": 0.0, "bandwidth_cv": 0.0})
    devices = clock.devices(6, experiment.seed)
    model, absent = 4 * len(simulation.network.vector), 4 * (A + B) // 2
    taken = []
    for client in range(6):
        sent = model - (0 if client % 2 else absent)
        taken.append(0.5 + sent / 1e4 + sent / 2e3 + SIZES[client] / 100)
    for order in itertools.permutations(range(6)):
        shuffled = replace(result, processed=result.processed[list(order)])
        costs = Costs(phase, runner.executor, devices).of_round(cohort, shuffled)
        assert costs.totals.virtual_seconds == pytest.approx(max(taken))
        assert costs.seconds.tolist() == pytest.approx([taken[client] for client in cohort.tolist()])


def test_personal_parts_are_not_sent(make_experiment):
    clock = option("clock", "lognormal", **{**CLOCK, "speed_cv": 0.0, "bandwidth_cv": 0.0})
    shared, personal = (
        make_experiment(network=mlp, clock=clock, clients_per_round=6, strategy=build(name).strategy)
        for name in ("fedavg", "fedper")
    )
    head = 4 * Simulation(shared).network.layout.head_size
    assert times(shared, 1)[1] - times(personal, 1)[1] == pytest.approx(
        head / CLOCK["upload"] + head / CLOCK["download"]
    )


def test_numbers_of_labels_are_sent_before_the_first_round(make_experiment):
    """FedDisco's clients send 3 numbers of 4 bytes: 0.25 s of latency and 12 / 2000 s."""
    clock = option("clock", "lognormal", **{**CLOCK, "speed_cv": 0.0, "bandwidth_cv": 0.0})
    experiment = make_experiment(network=mlp, clock=clock, strategy=build("feddisco").strategy)
    assert times(experiment, 0) == pytest.approx([0.25 + 12 / CLOCK["upload"]])


def test_clusters_of_ifca_are_compared_by_forward_passes(make_experiment):
    """Every participant downloads and tests all models: M more downloads and M n_k / 3 more samples."""
    clock = option("clock", "lognormal", **{**CLOCK, "speed_cv": 0.0, "bandwidth_cv": 0.0})
    plain = make_experiment(network=mlp, clock=clock, clients_per_round=6)
    several = make_experiment(network=mlp, clock=clock, clients_per_round=6, strategy=build("ifca").strategy)
    models = len(Simulation(several).initial().models)
    assert models > 1
    size = 4 * len(Simulation(plain).network.vector)
    more = (models - 1) * size / CLOCK["download"] + models * max(SIZES) / 3 / CLOCK["speed"]
    assert times(several, 1)[1] - times(plain, 1)[1] == pytest.approx(more)


def build(name: str, *overrides: str):
    return build_experiment(compose([*SETTING, f"strategy={name}", *overrides]))


def test_classifier_phase_downloads_the_encoders_first(make_experiment):
    """FedConcat: between the phases every client downloads all encoders, and passes its samples through them."""
    experiment = build("fedconcat", "clock=lognormal", "clock.speed_cv=0", "clock.bandwidth_cv=0", "rounds=8")
    simulation = Simulation(experiment)
    state = simulation.initial()
    while state.round < simulation.phase(state).end:
        state, _ = simulation.advance(state)
    before, after = state.totals, simulation.next_phase(state).totals
    sizes = simulation.federation.train.sizes
    received = (after.bytes_down - before.bytes_down) / len(sizes)
    passed = (after.forward_samples - before.forward_samples) * int(sizes.max()) / int(sizes.sum())
    assert received > 0 < passed
    expected = 0.05 + received / 2e6 + passed / 3 / 100
    assert after.virtual_seconds - before.virtual_seconds == pytest.approx(expected)


def test_samples_pass_frozen_encoders_in_every_step(make_experiment):
    """FedConcat without cached features: the classifier's rounds take one forward pass more per encoder and sample."""

    def first_classifier_round(features):
        clock = ("clock=lognormal", "clock.speed_cv=0", "clock.bandwidth_cv=0", "rounds=8")
        experiment = build("fedconcat", *clock, f"strategy.post_training.features={features}")
        simulation = Simulation(experiment)
        state = simulation.initial()
        while state.round < simulation.phase(state).end:
            state, _ = simulation.advance(state)
        encoders, state = len(state.models), simulation.next_phase(state)
        cohort = simulation.uploads(state).clients
        samples = simulation.round_runner(state).run(state, cohort, lambda done: None).processed[:, 1]
        after, _ = simulation.advance(state)
        return after.totals.virtual_seconds - state.totals.virtual_seconds, encoders * int(samples.max())

    (cached, _), (recomputed, passes) = map(first_classifier_round, ("cached", "recomputed"))
    assert recomputed - cached == pytest.approx(passes / 3 / 100)


def test_the_clock_changes_no_result_and_is_resumed(tmp_path: Path, plain) -> None:
    names = {"without": (), "whole": ("clock=tiers",), "parted": ("clock=tiers",)}
    without, whole, parted = (
        build("fedavg", "targets=[0.05,0.99]", f"output_dir={tmp_path / name}", *clock) for name, clock in names.items()
    )
    assert without.folder.parts[-2] != whole.folder.parts[-2] == parted.folder.parts[-2]
    summaries = [run(experiment) for experiment in (without, whole)]
    with pytest.raises(KeyboardInterrupt):
        run(parted, [Interrupts(2)])
    run(parted)
    recorded, timed, resumed = map(rows_of, (without, whole, parted))
    assert timed == resumed
    assert timed[0][VIRTUAL_SECONDS] == 0
    assert [{**row, VIRTUAL_SECONDS: None} for row in timed] == [{**row, VIRTUAL_SECONDS: None} for row in recorded]
    ends = [row[VIRTUAL_SECONDS] for row in resumed]
    assert ends == sorted(set(ends))
    reached = summaries[1]["rounds_to"]["0.05"]
    assert summaries[1]["virtual_seconds_to"] == {"0.05": ends[reached], "0.99": None}
    assert beyond_rows(summaries[1]) | {"virtual_seconds_to/0.05": ends[reached]} == beyond_rows(summaries[1])
    assert "virtual_seconds_to" not in summaries[0]


def rows_of(experiment):
    """A run's rows without the times of this machine."""
    return [
        {key: value for key, value in row.items() if not key.startswith("time/") or key == VIRTUAL_SECONDS}
        for row in read_rows(experiment.folder / METRICS)
    ]
