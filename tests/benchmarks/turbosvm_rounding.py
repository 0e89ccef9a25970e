"""What rounding changes in TurboSVM-FL: the same runs in process and vectorised, on scikit-learn's digits.

    python tests/benchmarks/turbosvm_rounding.py [SEEDS] [ROUNDS]

Prints, for the published solver settings and for the strict ones (strategy=turbosvm_strict), the largest difference in
test accuracy between the two executors over all rounds, and the accuracy after the last round. Then how many of 20 runs
of 3 rounds with 5 clients chose other support vectors after a change of the initial weights by a relative 10⁻⁷.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

import torch

from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.simulation.simulation import Simulation

EXECUTORS = ("in_process", "vectorized")


def accuracies(strategy: str, executor: str, seed: int, rounds: int) -> list[float]:
    """The test accuracy after every round."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            f"strategy={strategy}",
            f"hardware.executor={executor}",
            f"seed={seed}",
            f"rounds={rounds}",
            f"output_dir={folder}",
            "hardware.threads=1",
            "tracking=none",
        ]
        simulation = Simulation(build_experiment(compose(overrides)))
        state, measured = simulation.initial(), []
        for _ in range(rounds):
            state, _ = simulation.advance(state)
            measured.append(simulation.test(state)["test/accuracy"])
        return measured


PERTURBED = 20
"""Runs with changed initial weights."""

SAME = 1e-3
"""The largest distance between models, of their way, that rounding alone explains: other support vectors move a model
by some hundredths."""


def model_after(strategy: str, change: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The initial model ``[P]``, and the model after 3 rounds.

    Args:
        strategy: of the run.
        change: number of the change of the initial weights; None: they are not changed.
    """
    chosen = ("rounds=3", "clients_per_round=5", "local.lr=0.05", "hardware.threads=1", "tracking=none")
    simulation = Simulation(build_experiment(compose([f"strategy={strategy}", *chosen])))
    state = simulation.initial()
    model = state.models[0].model
    first = model.clone()
    if change is not None:
        model.mul_(1 + 1e-7 * torch.randn(len(model), generator=torch.Generator().manual_seed(change)))
    for _ in range(3):
        state, _ = simulation.advance(state)
    return first, state.models[0].model


def main(seeds: int, rounds: int) -> None:
    for strategy in ("turbosvm", "turbosvm_strict"):
        apart, last = [], []
        for seed in range(seeds):
            runs = [accuracies(strategy, executor, seed, rounds) for executor in EXECUTORS]
            apart.append(max(abs(a - b) for a, b in zip(*runs, strict=True)))
            last.append(runs[0][-1])
        shown = " ".join(f"{difference:.4f}" for difference in apart)
        spread = f"{statistics.fmean(last):.4f} ± {statistics.pstdev(last):.4f}"
        print(f"{strategy}: largest difference per seed {shown}; accuracy in round {rounds} {spread}", flush=True)
        first, last_model = model_after(strategy, None)
        way = (last_model - first).norm()
        models = [model_after(strategy, change)[1] for change in range(PERTURBED)]
        others = sum(bool((model - last_model).norm() > SAME * way) for model in models)
        print(f"{strategy}: other support vectors in {others} of {PERTURBED} runs", flush=True)


if __name__ == "__main__":
    main(*(int(argument) for argument in (*sys.argv[1:], "3", "40")[:2]))
