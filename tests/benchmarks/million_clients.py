"""A million clients with 20 samples each, 1 000 per round: start, time per round and memory, against ten thousand.

Random images of 4x4 pixels and logistic regression, so that what is measured is what is done per client. Each
federation lives in a fresh process. Rounds of both are made in turn, so that other work disturbs both alike, and
counted in the processor's seconds. The start ends with the first round, in seconds that pass; memory is the largest
resident set beyond the one with the data.

    python tests/benchmarks/million_clients.py [--clients 1000000] [--few 10000] [--pairs 5] [--threads 1]
                                               [--executor vectorized] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from peak_memory import peak
from random_images import random_images

from fedrun.config.composed import compose
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation

SAMPLES, COHORT, TEST = 20, 1000, 1000
IMAGES = Spec((1, 4, 4), 10)


def serve(clients: int, threads: int, executor: str) -> None:
    """Start a federation, then make a round for every line of the standard input; one JSON object each."""
    chosen = (
        "partition=iid",
        f"partition.clients={clients}",
        "model=logistic",
        f"clients_per_round={COHORT}",
        f"hardware.threads={threads}",
        f"hardware.executor={executor}",
        "tracking=none",
    )
    experiment = build_experiment(compose(chosen).config)
    data = random_images(clients * SAMPLES + TEST, IMAGES, clients * SAMPLES)
    before, began = peak(), time.perf_counter()
    simulation = Simulation(replace(experiment, dataset=InMemory(data)))
    state = simulation.initial()
    state, _ = simulation.advance(state)  # the first one also builds what the others use
    print(json.dumps({"start": time.perf_counter() - began, "peak": peak() - before}), flush=True)
    for _ in sys.stdin:
        began = time.process_time()
        state, _ = simulation.advance(state)
        print(json.dumps({"round": time.process_time() - began, "peak": peak() - before}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--executor", default="vectorized")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.threads, arguments.executor)
        return

    def federation(clients: int) -> subprocess.Popen[str]:
        options = ["--serve", str(clients), "--threads", str(arguments.threads), "--executor", arguments.executor]
        command = [sys.executable, __file__, *options]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        found: dict[str, float] = json.loads(process.stdout.readline())
        return found

    both = federation(arguments.clients), federation(arguments.few)
    starts = [answer(process) for process in both]
    times: list[tuple[dict[str, float], ...]] = []
    for _ in range(arguments.pairs):
        pair = []
        for process in both:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            pair.append(answer(process))
        times.append(tuple(pair))
    for process in both:
        process.communicate()
    ratio = statistics.median(many["round"] / few["round"] for many, few in times)
    for clients, start, last in zip((arguments.clients, arguments.few), starts, times[-1], strict=True):
        print(
            f"{clients} clients: to the end of the first round {start['start']:.1f} s; a round {last['round']:.3f} s; "
            f"memory {last['peak'] / 1e6:.0f} MB beyond the data"
        )
    print(f"a round of {COHORT} among {arguments.clients} against among {arguments.few}: {ratio:.3f} x")
    if arguments.json:
        found = {"round": ratio, "first_round_s": starts[0]["start"], "peak_bytes": times[-1][0]["peak"]}
        arguments.json.write_text(json.dumps({"million_clients": found}))


if __name__ == "__main__":
    main()
