"""Rounds on a machine that other processes use, and on one that they leave: fedrun's defaults against other settings.

The settings are one thread, all cores with passive waiting, and all cores with the waiting of GNU's OpenMP library,
which was the default before. Each setting has a process of its own, since OpenMP reads the environment when it is
loaded; they make rounds in turn, so that other work disturbs all of them alike. Seconds are those that pass. The load
is one process per core that computes all the time. Without it the machine has to be idle.

Workloads: the default run on scikit-learn's digits; an MLP of 600 and 400 hidden units on digits, just large enough for
several threads, which wait for each other often; and a FEMNIST round of eight clients (random images, LEAF's CNN,
batches of 64).

    python tests/benchmarks/shared_machine.py [--workloads digits mlp femnist] [--busy CORES] [--pairs 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation
from fedrun.system.cores import cores

WRITERS, SAMPLES = 16, 227


@dataclass(frozen=True)
class Workload:
    """What is computed in turn.

    Attributes:
        chosen: overrides of the default configuration.
        rounds: that are timed together.
        femnist: whether the data are random images of FEMNIST's shape, and the model LEAF's CNN.
    """

    chosen: tuple[str, ...]
    rounds: int
    femnist: bool = False


WORKLOADS = {
    "digits": Workload((), 30),
    "mlp": Workload(
        (
            "model.hidden=[600,400]",
            "partition=iid",
            "partition.clients=4",
            "clients_per_round=1.0",
            "local.batch_size=128",
        ),
        30,
    ),
    "femnist": Workload(
        (
            "partition=iid",
            f"partition.clients={WRITERS}",
            "clients_per_round=8",
            "local.batch_size=64",
            "local.lr=0.01",
        ),
        1,
        femnist=True,
    ),
}

LIBRARY = {"GOMP_SPINCOUNT": "300000"}
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
SETTINGS: dict[str, tuple[dict[str, str], int | None]] = {
    "default": ({}, None),
    "one thread": ({}, 1),
    "all cores, passive": (PASSIVE, cores()),
    "all cores, as before": (LIBRARY, cores()),
}
"""The environment and ``hardware.threads`` of each setting."""


LOAD = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    pass
"""
"""A process that computes until the benchmark ends, also if the benchmark is killed."""


def serve(work: Workload) -> None:
    """Make the workload's rounds for every line of the standard input; print the seconds that they took."""
    experiment = build_experiment(compose([*work.chosen, "tracking=none", *sys.argv[3:]]))
    if work.femnist:
        # not before fedrun, which sets how OpenMP waits: it loads PyTorch
        from random_images import FEMNIST, random_images

        count = WRITERS * SAMPLES
        experiment = replace(
            experiment,
            dataset=InMemory(random_images(count + 64, FEMNIST, count)),
            model=option("model", "leaf_femnist_cnn"),
        )
    simulation = Simulation(experiment)
    state, _ = simulation.advance(simulation.initial())  # also builds what later rounds reuse
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        for _ in range(work.rounds):
            state, _ = simulation.advance(state)
        print(time.perf_counter() - began, flush=True)


def measure(name: str, busy: int, pairs: int) -> dict[str, float]:
    """The median seconds of each setting, beside so many processes that compute all the time."""
    rest = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    load = [subprocess.Popen([sys.executable, "-c", LOAD, str(os.getpid())]) for _ in range(busy)]
    workers = {}
    for setting, (environment, threads) in SETTINGS.items():
        keys = [] if threads is None else [f"hardware.threads={threads}"]
        command = [sys.executable, __file__, "--serve", name, *keys]
        workers[setting] = subprocess.Popen(
            command, env={**rest, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        answer(workers[setting])
    try:
        seconds: dict[str, list[float]] = {setting: [] for setting in workers}
        for _ in range(pairs):
            for setting, worker in workers.items():
                seconds[setting].append(seconds_of(worker))
    finally:
        for process in load:
            process.kill()
            process.wait()
        for worker in workers.values():
            worker.communicate()
    return {setting: statistics.median(times) for setting, times in seconds.items()}


def seconds_of(worker: subprocess.Popen[str]) -> float:
    """Let a process make its rounds; the seconds that they took."""
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(answer(worker))


def answer(worker: subprocess.Popen[str]) -> str:
    """A line that a process prints."""
    assert worker.stdout is not None
    if line := worker.stdout.readline():
        return line
    raise SystemExit(f"a process of the benchmark ended with status {worker.wait()}; what it printed is above")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(WORKLOADS[sys.argv[2]])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--busy", type=int, nargs="+", default=[0, cores()])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {}
    for name in arguments.workloads:
        for busy in arguments.busy:
            seconds = measure(name, busy, arguments.pairs)
            default, before = seconds["default"], seconds["all cores, as before"]
            best = min(seconds[setting] for setting in seconds if setting != "default")
            print(f"{name} beside {busy} busy processes on {cores()} cores (load average {os.getloadavg()[0]:.1f}):")
            print("  " + ", ".join(f"{setting} {median:.3f} s" for setting, median in seconds.items()))
            print(
                f"  default against the best other setting: {default / best:.2f} x; as before: {default / before:.2f} x"
            )
            found[f"{name}/{busy}"] = {"against_best": default / best, "against_before": default / before}
    if arguments.json:
        arguments.json.write_text(json.dumps({"shared_machine": found}))


if __name__ == "__main__":
    main()
