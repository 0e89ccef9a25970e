"""What global model appeal adds to a run: thresholds of 500 clients, and their evaluation in every tenth round.

500 seen clients with as many samples as EMNIST gives each of 1 000 (698 on average), 40 % of them for the client's own
test; 10 clients per round make 30 steps on batches of 64. Compared are the seconds that thresholds and evaluations of
all clients take with the seconds that the rounds take, in one and the same run.

    python tests/benchmarks/appeal_cost.py [--rounds 300] [--measured 40] [--threads 2] [--executor vectorized]
                                           [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from random_images import FEMNIST, random_images

from fedrun.config import build_experiment, compose
from fedrun.datasets.base import Dataset, DatasetRecipe, Spec
from fedrun.simulation import Simulation

CLIENTS, SAMPLES, EVERY = 500, 698, 10


@dataclass(frozen=True)
class Given(DatasetRecipe):
    """A dataset in memory."""

    dataset: Dataset

    @property
    def spec(self) -> Spec:
        return self.dataset.spec

    def load(self) -> Dataset:
        return self.dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="of the run that the costs are spread over")
    parser.add_argument("--measured", type=int, default=40, help="rounds that are really made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--executor", default="vectorized")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    chosen = (
        "strategy=fedavg",
        "appeal=warmup",
        "partition=iid",
        f"partition.clients={CLIENTS}",
        "population.test_share=0.4",
        f"model={arguments.model}",
        *(["model.hidden=[64,30]"] if arguments.model == "mlp" else []),
        "clients_per_round=10",
        "local.steps=30",
        "local.epochs=null",
        "local.batch_size=64",
        "local.lr=0.005",
        f"rounds={arguments.rounds}",
        f"hardware.threads={arguments.threads}",
        f"hardware.executor={arguments.executor}",
        "tracking=none",
    )
    experiment = build_experiment(compose(chosen).config)
    data = random_images(CLIENTS * SAMPLES + 1000, FEMNIST, CLIENTS * SAMPLES)
    simulation = Simulation(replace(experiment, dataset=Given(data)))

    def timed(work) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    thresholds = timed(lambda: simulation.assessment.thresholds)
    state, rounds, evaluations = simulation.initial(), 0.0, []
    state, _ = simulation.advance(state)  # the first one also builds what the others use
    for number in range(arguments.measured):
        began = time.perf_counter()
        state, _ = simulation.advance(state)
        rounds += time.perf_counter() - began
        if number % EVERY == 0:
            evaluations.append(timed(lambda state=state: simulation.assessment.clients(state)))
    per_round, per_evaluation = rounds / arguments.measured, sum(evaluations) / len(evaluations)
    run = arguments.rounds * per_round
    added = thresholds + arguments.rounds / EVERY * per_evaluation
    print(
        f"{arguments.rounds} rounds: appeal adds {added / run:.1%} (thresholds {thresholds / run:.1%}); "
        f"a round {per_round:.3f} s, thresholds {thresholds:.2f} s, an evaluation of all clients {per_evaluation:.3f} s"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"appeal_cost": {"added": added / run, "thresholds": thresholds / run}}))


if __name__ == "__main__":
    main()
