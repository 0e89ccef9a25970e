"""What rounding changes in TurboSVM-FL: the same runs in process and vectorised, on scikit-learn's digits.

    python tests/benchmarks/turbosvm_rounding.py [SEEDS] [ROUNDS]

Prints, for the published solver settings and for the strict ones (strategy=turbosvm_strict), the largest difference in
test accuracy between the two executors over all rounds, and the accuracy after the last round.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

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


if __name__ == "__main__":
    main(*(int(argument) for argument in (*sys.argv[1:], "3", "40")[:2]))
