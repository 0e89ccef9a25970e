"""What global model appeal adds to a run: thresholds of 500 clients, and their evaluation in every tenth round.

MaxFL's setting for EMNIST (``hparams=maxfl_emnist``) on random images: 1 000 clients with 698 samples each, 40 % of
them for the client's own test; 500 clients are seen, and 10 of them per round make 30 steps on batches of 64. The
seconds of thresholds and of evaluations on clients are compared with those of the run without them: its rounds, and in
every tenth the evaluation on the 116 323 pooled test samples.

    python tests/benchmarks/appeal_cost.py [--rounds 300] [--measured 30] [--threads 1] [--clock cpu] [--unseen 0]
                                           [--executors in_process vectorized] [--sharing 7] [--json FILE]

By the count of steps alone, 100 steps of 500 clients are 0.56 of the 300 rounds' 30 steps of 10. ``--unseen 500`` adds
the clients that never train, as the published setting does. In the paper all strategies share the thresholds, which a
sweep's runs do through the cache; so each is said to add its part of them, of ``--sharing`` strategies.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median

from interleaved import CLOCKS
from random_images import FEMNIST, random_images

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.simulation import Simulation

CLIENTS, SAMPLES, TEST_SAMPLES, EVERY = 500, 698, 116_323, 10


def experiment(executor: str, unseen: int, rounds: int, threads: int) -> Experiment:
    clients = CLIENTS + unseen
    chosen = (
        "hparams=maxfl_emnist",
        "strategy=fedavg",
        f"population.unseen_clients={unseen}",
        f"rounds={rounds}",
        f"hardware.threads={threads}",
        f"hardware.executor={executor}",
        "tracking=none",
    )
    data = random_images(clients * SAMPLES + TEST_SAMPLES, FEMNIST, clients * SAMPLES)
    partition = option("partition", "iid", clients=clients, seed=None)
    return replace(build_experiment(compose(chosen).config), dataset=InMemory(data), partition=partition)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="of the run that the costs are spread over")
    parser.add_argument("--measured", type=int, default=30, help="rounds that are really made")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--unseen", type=int, default=0)
    parser.add_argument("--executors", nargs="+", default=["in_process", "vectorized"])
    parser.add_argument("--sharing", type=int, default=7, help="strategies of a sweep, as in MaxFL's table 1")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    clock, results = CLOCKS[arguments.clock], {}

    for executor in arguments.executors:
        simulation = Simulation(experiment(executor, arguments.unseen, arguments.rounds, arguments.threads))
        state, _ = simulation.advance(simulation.initial())  # the first one also builds what the others use
        rounds, pooled, everyone = [], [], []
        began = clock()
        _ = simulation.thresholds
        thresholds = clock() - began
        for number in range(arguments.measured):
            began = clock()
            state, _ = simulation.advance(state)
            rounds.append(clock() - began)
            if number % EVERY == 0:
                began = clock()
                simulation.evaluator(state).results(state, simulation.federation.test.samples)
                middle = clock()
                simulation.evaluator(state).clients(state)
                pooled.append(middle - began)
                everyone.append(clock() - middle)
        run = arguments.rounds * (median(rounds) + median(pooled) / EVERY)
        evaluations = arguments.rounds / EVERY * median(everyone)
        shared = (thresholds / arguments.sharing + evaluations) / run
        results[executor] = {"thresholds": thresholds / run, "evaluations": evaluations / run, "shared": shared}
        print(
            f"{executor}: thresholds {thresholds / run:.3f}, evaluations {evaluations / run:.3f} of {arguments.rounds} "
            f"rounds' time; a round {median(rounds):.3f} s, thresholds {thresholds:.1f} s, an evaluation of all "
            f"clients {median(everyone):.3f} s, of the pooled test samples {median(pooled):.3f} s; both add "
            f"{shared:.3f} to a run whose thresholds {arguments.sharing} strategies share",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"appeal_cost": results}))


if __name__ == "__main__":
    main()
