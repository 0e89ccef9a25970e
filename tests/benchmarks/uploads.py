"""What privacy and compression add to a round of FEMNIST's size: 8 clients, the LEAF CNN, random images.

    python -m tests.benchmarks.uploads [--cases "clip and noise" ...] [--pairs 5] [--threads 1] [--clock cpu]

The clock ``cpu`` counts the seconds of this process's threads; with one thread it is little disturbed by other work.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import torch

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Dataset, Scaled, Spec
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.simulation import Simulation

from .interleaved import CLOCKS, interleave

SHORT = 1e-3
"""A clip that every update exceeds."""

CASES: dict[str, dict[str, object]] = {
    "clip and noise": {"privacy": option("privacy", "user_level", clip=SHORT, noise_multiplier=1.0, sampling="fixed")},
    "DP-SGD": {"privacy": option("privacy", "sample_level", noise_multiplier=1.0, sample_share=20 / 220)},
    "top-k 1 %": {"compression": option("compression", "topk", fraction=0.01)},
    "qsgd 4 bits": {"compression": option("compression", "quantize")},
    "scaled sign": {"compression": option("compression", "sign")},
    "fixed point": {"secure_sum": option("secure_sum", "fixed_point", levels=2**16)},
}

CLIENTS, SAMPLES = 8, 220
"""Clients of a round, and samples of each: FEMNIST's mean."""


def femnist_sized() -> Dataset:
    """Random grey 28x28 images of 62 classes."""
    draw = torch.Generator().manual_seed(0)
    count = CLIENTS * SAMPLES + 62
    return Dataset(
        spec=Spec((1, 28, 28), 62),
        encoding=Scaled(255.0),
        inputs=torch.randint(0, 256, (count, 1, 28, 28), generator=draw, dtype=torch.uint8),
        targets=torch.randint(0, 62, (count,), generator=draw),
        train_size=CLIENTS * SAMPLES,
        users=None,
        class_names=tuple(map(str, range(62))),
        fingerprint="random",
    )


def experiment(dataset: Dataset, threads: int = 1, **changes: object) -> Experiment:
    """FedAvg, one epoch, batches of 20."""
    settings = [f"clients_per_round={CLIENTS}", "local.batch_size=20", "tracking=none", f"hardware.threads={threads}"]
    base = build_experiment(compose(settings))
    given = {
        "dataset": InMemory(dataset),
        "model": option("model", "leaf_femnist_cnn"),
        "partition": option("partition", "iid", clients=CLIENTS),
    }
    return replace(base, **given, **changes)


def rounds(simulation: Simulation) -> Iterator[None]:
    """Make one round at a time; clients keep their state."""
    state = simulation.initial()
    while True:
        state, metrics = simulation.advance(state)
        if metrics.get("privacy/clipped_share", 1.0) < 1.0:
            raise RuntimeError(f"some updates are shorter than the clip {SHORT:g}")
        yield


def main() -> None:
    """Print every transform's ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    arguments = parser.parse_args()
    dataset = femnist_sized()
    plain = rounds(Simulation(experiment(dataset, arguments.threads)))
    for name in arguments.cases:
        changed = rounds(Simulation(experiment(dataset, arguments.threads, **CASES[name])))
        took = interleave(changed.__next__, plain.__next__, arguments.pairs, CLOCKS[arguments.clock])
        print(f"{name:16s} {took}", flush=True)


if __name__ == "__main__":
    main()
