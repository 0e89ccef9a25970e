"""The most memory that a round holds at a time, in vectors of the model's size P, for C clients in process.

An MLP of some 4 million parameters and clients with two samples each, so that beside vectors of the model's size data
and activations count for little. Counted are the bytes of all tensors that PyTorch allocates, by its own record, from
before the simulation is built to the end of its second round; client states lie on the disk and are not counted
(`hardware.client_memory_gb=0`). A server strategy that only averages is to hold 8 vectors at most, one that sees the
model of every client C + 6; what a server carries on from round to round beside the model comes on top, as it is before
and after the round.

    python tests/benchmarks/round_memory.py [--clients 8] [--strategies fedavg turbosvm ...] [--set KEY=VALUE ...]
        [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from random_images import random_images

from fedrun.config.composed import compose
from fedrun.data.datasets.base import Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation

IMAGES = Spec((1, 16, 16), 10)
AVERAGING = ("fedavg", "fedprox", "scaffold", "fednova", "fedadam", "fedams", "feddyn", "feddc", "moon", "perfedavg")
STRATEGIES = (*AVERAGING, "qffl", "fedumf", "turbosvm", "median", "trimmed_mean", "krum", "norm_clipping")
WIDTH = 1850  # 256 x 1850 + 1850 x 1850 + ...: 3.9 million parameters


def held(strategy: str, clients: int, more: list[str]) -> tuple[float, float]:
    """The most that was held at a time and what is allowed, in vectors of P numbers."""
    chosen = (
        f"strategy={strategy}",
        "partition=iid",
        f"partition.clients={2 * clients}",
        f"clients_per_round={clients}",
        "model=mlp",
        f"model.hidden=[{WIDTH},{WIDTH}]",
        "hardware.threads=1",
        "hardware.client_memory_gb=0",
        "tracking=none",
        "rounds=5",
        *more,
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
    carried = sum(slot.numel() for slot in state.server.slots.values())
    allowed = clients + 6 if experiment.strategy.server.rows in ("all", "parameters") else 8
    return most / (4 * size), allowed + round(2 * carried / size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--set", nargs="+", default=[], help="further keys, such as local.momentum=0.9")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {}
    for strategy in arguments.strategies:
        vectors, allowed = held(strategy, arguments.clients, arguments.set)
        print(f"{strategy:13s} C = {arguments.clients}: {vectors:.2f} P, allowed {allowed}", flush=True)
        found[strategy] = {"vectors": vectors, "allowed": allowed}
    if arguments.json:
        arguments.json.write_text(json.dumps({"round_memory": found}))


if __name__ == "__main__":
    main()
