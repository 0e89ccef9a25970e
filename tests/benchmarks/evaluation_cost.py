"""What evaluating the global model costs beside training: FEMNIST's shape, the LEAF CNN.

Interleaved are the evaluation of 2 000 samples, in float32 and in bfloat16, and training on as many (batches of 64).
From the ratios follows what the 80 000 samples of 355 held-out users cost, in rounds of 8 clients x 227 samples, and
which share of a run's time they take: after every round and after every tenth, fully and with `evaluation.adaptive`.
The run is one of 200 rounds whose accuracy follows 0.85 (1 - exp(-t / 69)), which passes its target of 0.7 in round
121; how many samples adaptive evaluation takes there is found by drawing them.

    python tests/benchmarks/evaluation_cost.py [--pairs 5] [--threads 1] [--clock cpu] [--batch-size 256] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import get_args

import torch
from interleaved import CLOCKS, interleave
from random_images import plain_sgd, random_images

from fedrun.config import option
from fedrun.evaluation import SampleResults, evaluate
from fedrun.parameters import FlatNetwork
from fedrun.precision import Precision
from fedrun.screening import screened
from fedrun.training import Samples, train

SAMPLES, TEST, ROUND = 2000, 80_000, 8 * 227
ROUNDS, TARGET, BATCH, MISS = 200, 0.7, 256, 1e-9


def accuracy(round: int) -> float:
    """Of the run that is assumed."""
    return 0.85 * (1 - math.exp(-round / 69))


def evaluated(every: int, adaptive: bool) -> int:
    """How many test samples are evaluated in the run."""
    total, reached = 0, False
    everything = torch.arange(TEST)
    for round in [0, *range(every, ROUNDS + 1, every)]:
        if not adaptive or round == ROUNDS:
            total += TEST
            continue
        right = torch.arange(TEST) < accuracy(round) * TEST  # which samples they are does not matter

        def evaluation(indices: torch.Tensor, right: torch.Tensor = right) -> SampleResults:
            return SampleResults(torch.zeros(len(indices)), right[indices].long(), torch.ones_like(indices))

        target = math.inf if reached or round == 0 else TARGET
        draw = torch.Generator().manual_seed(round)
        total += screened(evaluation, everything, target, BATCH, MISS, draw).drawn
        reached = reached or accuracy(round) >= TARGET
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    data = random_images(SAMPLES)
    network = FlatNetwork(option("model", "leaf_femnist_cnn").build(data.spec))
    samples, everything = Samples.of(data, torch.device("cpu")), torch.arange(SAMPLES)
    half, local = option("strategy/client", "sgd"), plain_sgd(0.01, 64)

    def training() -> object:
        return train(network, half, local, samples, everything, local.lr, {}, torch.Generator())

    found = {}
    for precision in get_args(Precision):

        def evaluation(precision: Precision = precision) -> object:
            return evaluate(network, samples, everything, arguments.batch_size, precision)

        comparison = interleave(evaluation, training, arguments.pairs, CLOCKS[arguments.clock])
        found[precision] = comparison.ratio
        rounds = comparison.ratio * TEST / ROUND
        print(f"{precision:8s} evaluating against training: {comparison}; {TEST} samples are {rounds:.1f} rounds")
    shares = {}
    for every in (1, 10):
        for adaptive in (False, True):
            count = evaluated(every, adaptive)
            name = f"every={every}{' adaptive' if adaptive else ''}"
            for precision, ratio in found.items():
                cost = ratio * count
                shares[f"{name} {precision}"] = share = cost / (cost + ROUNDS * ROUND)
                print(f"{name:20s} {precision:8s}: {count:8d} samples, {share:.1%} of a run of {ROUNDS} rounds")
    if arguments.json:
        arguments.json.write_text(json.dumps({"evaluation_cost": found, "evaluation_share": shares}))


if __name__ == "__main__":
    main()
