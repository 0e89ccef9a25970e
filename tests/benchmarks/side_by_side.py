"""When training side by side is faster: rounds of ``hardware.executor=vectorized`` against ``in_process``.

Perceptrons of several sizes on synthetic data of 784 features (100 clients of 595 samples), for several cohorts and
batch sizes. The rule of ``hardware.executor=null`` follows from it.

    python tests/benchmarks/side_by_side.py [--pairs 5] [--threads 1] [--clock cpu] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from interleaved import CLOCKS, interleave

import fedrun

MODELS = {
    "logistic": ["model=logistic"],
    "64": ["model=mlp", "model.hidden=[64]"],
    "200, 200": ["model=mlp", "model.hidden=[200,200]"],
    "400, 400": ["model=mlp", "model.hidden=[400,400]"],
}

DATA = ["dataset=synthetic", "dataset.features=784", "dataset.clients=100", "dataset.size_log_mean=6.3", "~hparams"]


def round_by(executor: str, threads: int, overrides: list[str]) -> Callable[[], object]:
    """A function that makes one more round of a simulation."""
    plain = ["tracking=none", "display=none", "dataset.size_log_std=0.0", "evaluation.every=1000000"]
    hardware = [f"hardware.executor={executor}", f"hardware.threads={threads}"]
    experiment = fedrun.build_experiment(fedrun.compose([*plain, *DATA, *hardware, *overrides]).config)
    simulation = fedrun.Simulation(experiment)
    state = simulation.initial()

    def advance() -> None:
        nonlocal state
        state, _ = simulation.advance(state)

    return advance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ratios: dict[str, float] = {}
    for name, model in MODELS.items():
        for batch_size in (10, 64):
            for clients in (2, 4, 8, 32):
                chosen = [*model, f"local.batch_size={batch_size}", f"clients_per_round={clients}"]
                tested, baseline = (round_by(each, arguments.threads, chosen) for each in ("vectorized", "in_process"))
                comparison = interleave(tested, baseline, arguments.pairs, CLOCKS[arguments.clock])
                case = f"{name}; batches of {batch_size}; {clients} clients"
                ratios[case] = comparison.ratio
                print(f"{case}: {comparison}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"side_by_side": ratios}))


if __name__ == "__main__":
    main()
