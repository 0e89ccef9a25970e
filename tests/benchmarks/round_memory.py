"""The most memory that a round holds at a time, in vectors of the model's size P, for C clients in process.

An MLP of some 4 million parameters and clients with two samples each, so that beside vectors of the model's size data
and activations count for little. Counted are the bytes of all tensors that PyTorch allocates, by its own record, from
before the simulation is built to the end of its second round. A server half that only averages is to hold 8 vectors at
most, one that sees the model of every client C + 6.

    python tests/benchmarks/round_memory.py [--clients 8] [--strategies fedavg turbosvm ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from random_images import random_images

from fedrun.config import build_experiment, compose
from fedrun.datasets.base import Spec
from fedrun.datasets.in_memory import InMemory
from fedrun.simulation import Simulation

IMAGES = Spec((1, 16, 16), 10)
STRATEGIES = ("fedavg", "fednova", "turbosvm", "median", "trimmed_mean", "krum", "norm_clipping")
WIDTH = 1850  # 256 x 1850 + 1850 x 1850 + ...: 3.9 million parameters


def held(strategy: str, clients: int) -> tuple[float, int, bool]:
    """The most that was held at a time, in vectors of P numbers; P; whether the server half sees every model."""
    chosen = (
        f"strategy={strategy}",
        "partition=iid",
        f"partition.clients={2 * clients}",
        f"clients_per_round={clients}",
        "model=mlp",
        f"model.hidden=[{WIDTH},{WIDTH}]",
        "hardware.threads=1",
        "tracking=none",
        "rounds=5",
    )
    experiment = build_experiment(compose(chosen).config)
    data = random_images(4 * clients + 10, IMAGES, 4 * clients)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        simulation = Simulation(replace(experiment, dataset=InMemory(data)))
        state = simulation.initial()
        for _ in range(2):
            state, _ = simulation.advance(state)
    size = simulation.network.layout.size
    now = most = 0
    for event in recorded.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most / (4 * size), size, experiment.strategy.server.rows == "all"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {}
    for strategy in arguments.strategies:
        vectors, size, rows = held(strategy, arguments.clients)
        allowed = arguments.clients + 6 if rows else 8
        print(f"{strategy:13s} C = {arguments.clients}, P = {size}: {vectors:.2f} P, allowed {allowed}", flush=True)
        found[strategy] = {"vectors": vectors, "allowed": allowed}
    if arguments.json:
        arguments.json.write_text(json.dumps({"round_memory": found}))


if __name__ == "__main__":
    main()
