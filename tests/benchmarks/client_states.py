"""SCAFFOLD on very many clients, some of which have taken part: memory, checkpoint, and rounds without growth.

Random images of 4x4 pixels and logistic regression. Rounds are made until so many clients have a state; then the state
is saved and loaded as by a run. Memory is the largest resident set beyond the one with the data. After that, rounds of
the same clients are repeated, and the resident set must not grow.

    python tests/benchmarks/client_states.py [--clients 1000000] [--taken 100000] [--cohort 10000] [--rounds 200]
                                             [--client-memory-gb 4] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from peak_memory import peak
from random_images import random_images

from fedrun.config.composed import compose
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.execution.vector_store import VectorStore
from fedrun.experiment.experiment import build_experiment
from fedrun.runs.checkpoint import Checkpoint, Identity, load, save
from fedrun.runs.folder import CLIENT_STATES
from fedrun.runs.metrics_file import Written
from fedrun.simulation.simulation import Simulation

SAMPLES, TEST = 20, 1000
IMAGES = Spec((1, 4, 4), 10)
IDENTITY = Identity("benchmark", 0, "random")


def resident() -> int:
    """Bytes of this process in main memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--taken", type=int, default=100_000)
    parser.add_argument("--cohort", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200, help="of one client, after those")
    parser.add_argument("--client-memory-gb", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    chosen = (
        "strategy=scaffold",
        "partition=iid",
        f"partition.clients={given.clients}",
        "model=logistic",
        "hardware.threads=1",
        "hardware.executor=vectorized",
        f"hardware.client_memory_gb={given.client_memory_gb}",
        "tracking=none",
    )
    experiment = build_experiment(compose([*chosen, f"clients_per_round={given.cohort}"]))
    count = given.clients * SAMPLES
    experiment = replace(experiment, dataset=InMemory(random_images(count + TEST, IMAGES, count)))
    data = peak()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        simulation = Simulation(experiment, memory_file=folder / CLIENT_STATES)
        state = simulation.initial()
        while len(state.client_states.held) < given.taken:
            state, _ = simulation.advance(state)
        trained = time.perf_counter() - began
        participants, beyond = len(state.client_states.held), peak() - data
        checkpoint = Checkpoint(state, Written(), "", 0.0, 1)
        path = folder / "checkpoint.pt"
        began = time.perf_counter()
        save(path, checkpoint, IDENTITY, simulation.store)
        saved = time.perf_counter() - began
        limit = given.client_memory_gb * 2**30
        initial, store = (
            simulation.initial(),
            VectorStore(simulation.network.layout.size, limit, folder / CLIENT_STATES),
        )
        began = time.perf_counter()
        again = load(path, IDENTITY, initial, store).state
        loaded = time.perf_counter() - began
        assert len(again.client_states.held) == participants
        size = sum(file.stat().st_size for file in folder.iterdir())
        with_checkpoint = peak() - data
    small = Simulation(replace(experiment, clients_per_round=1), federation=simulation.federation)
    state, sizes = small.initial(), []
    for number in range(given.rounds):
        state, _ = small.advance(state)
        if number in (given.rounds // 2, given.rounds - 1):
            sizes.append(resident())
    growth = (sizes[-1] - sizes[0]) / (given.rounds - given.rounds // 2)
    print(
        f"{given.clients} clients, {participants} have taken part in {trained:.1f} s: {beyond / 1e6:.0f} MB beyond data"
    )
    print(f"checkpoint: saved in {saved:.2f} s, loaded in {loaded:.2f} s, {size / 1e6:.1f} MB with the states' file")
    print(f"with the checkpoint and its copy {with_checkpoint / 1e6:.0f} MB beyond the data")
    print(f"{given.rounds} rounds of one client: {growth:.0f} bytes per round in the second half")
    if given.json:
        found = {
            "participants": participants,
            "peak_bytes": beyond,
            "saved_s": saved,
            "loaded_s": loaded,
            "checkpoint_bytes": size,
            "growth_bytes_per_round": growth,
        }
        given.json.write_text(json.dumps({"client_states": found}))


if __name__ == "__main__":
    main()
