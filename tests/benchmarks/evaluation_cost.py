"""What evaluating the global model costs beside training: FEMNIST's shape, the LEAF CNN.

Interleaved are the evaluation of 2 000 samples, in float32 and in bfloat16, and training on as many (batches of 64).
From the ratios follows what the 80 000 samples of 355 held-out users cost, in rounds of 8 clients x 227 samples, and
which share of a run's time evaluation takes: with the settings of `hparams=femnist`, with changes to them, and at least
(the last round and the one that reaches the target). Evaluating the 725 000 training samples at the end of the run, for
`clients.parquet`, counts where the settings ask for it.

The run is one of 200 rounds whose accuracy follows 0.85 (1 - exp(-t / 69)), which passes its target of 0.7 in round
120; such a smooth curve is the dearest, as it stays near the target for long. The other run's accuracies stray from it
by 2 points (standard deviation; the mean of five such runs). How many samples adaptive evaluation takes is found by
drawing them.

    python tests/benchmarks/evaluation_cost.py [--pairs 5] [--threads 1] [--clock cpu] [--batch-size 256] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from pathlib import Path
from typing import get_args

import torch
from interleaved import CLOCKS, interleave
from random_images import plain_sgd, random_images

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.samples import Samples
from fedrun.data.tasks.base import SampleResults
from fedrun.data.tasks.classification import CLASSIFICATION
from fedrun.evaluation.early_rejection import evaluate_until_rejected
from fedrun.experiment.evaluation import Evaluation
from fedrun.experiment.experiment import build_experiment
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.inference import evaluate
from fedrun.models.precision import Precision
from fedrun.training.client_round import ClientRound
from fedrun.training.train import train

SAMPLES, TEST, TRAIN, ROUND = 2000, 80_000, 725_000, 8 * 227
ROUNDS, TARGET = 200, 0.7
SETTINGS: dict[str, tuple[str, ...]] = {
    "hparams=femnist": (),
    "every=10": ("evaluation.every=10",),
    "full_every=100": ("evaluation.full_every=100",),
    "full_every=20": ("evaluation.full_every=20",),
    "adaptive=false": ("evaluation.adaptive=false",),
    "adaptive=false every=10": ("evaluation.adaptive=false", "evaluation.every=10"),
    "train_clients=true": ("evaluation.train_clients=true",),
}


def accuracies(stray: float, seed: int) -> list[float]:
    """Of the run that is assumed, after every round."""
    draw = random.Random(seed)
    return [0.85 * (1 - math.exp(-round / 69)) + draw.gauss(0, stray) for round in range(ROUNDS + 1)]


def evaluated(how: Evaluation, accuracies: list[float], seed: int) -> int:
    """How many samples are evaluated in the run."""
    processed = ROUNDS * ROUND
    total = TRAIN if how.train_clients is True or (how.train_clients == "auto" and processed >= 3 * TRAIN) else 0
    everything, reached = torch.arange(TEST), False
    for round in [0, *range(how.every, ROUNDS + 1, how.every)]:
        due = how.full_every is not None and round and round % how.full_every == 0
        if not how.adaptive or due or round == ROUNDS:
            total += TEST
        else:
            right = torch.arange(TEST) < accuracies[round] * TEST  # which samples they are does not matter

            def evaluation(indices: torch.Tensor, right: torch.Tensor = right) -> SampleResults:
                ones = torch.ones_like(indices)
                return SampleResults(torch.zeros(len(indices)), right[indices].long(), ones, CLASSIFICATION)

            target = math.inf if reached or round == 0 else TARGET
            draw = torch.Generator().manual_seed(1000 * seed + round)
            total += evaluate_until_rejected(
                evaluation, everything, target, how.batch_size, how.miss_probability, draw
            ).drawn
        reached = reached or (round > 0 and accuracies[round] >= TARGET)
    return total


def evaluation_of(changes: tuple[str, ...]) -> Evaluation:
    """How runs in TurboSVM-FL's setting for FEMNIST are evaluated, with changes."""
    return build_experiment(compose(["dataset=femnist", *changes]).config).evaluation


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
    client, local = option("strategy/client", "sgd"), plain_sgd(0.01, 64)

    def training() -> object:
        work = ClientRound(network, client, local, samples, everything, local.lr, {})
        return train(work, -(-SAMPLES // 64), torch.Generator())

    found = {}
    for precision in get_args(Precision):

        def evaluation(precision: Precision = precision) -> object:
            return evaluate(network, samples, everything, arguments.batch_size, precision)

        comparison = interleave(evaluation, training, arguments.pairs, CLOCKS[arguments.clock])
        found[precision] = comparison.ratio
        rounds = comparison.ratio * TEST / ROUND
        print(f"{precision:8s} evaluating against training: {comparison}; {TEST} samples are {rounds:.1f} rounds")
    counts = {f"{name}, smooth": [evaluated(evaluation_of(own), accuracies(0, 0), 0)] for name, own in SETTINGS.items()}
    counts["hparams=femnist, straying"] = [
        evaluated(evaluation_of(()), accuracies(0.02, seed), seed) for seed in range(5)
    ]
    counts["at least"] = [2 * TEST]
    shares = {}
    for name, totals in counts.items():
        count = statistics.fmean(totals)
        for precision, ratio in found.items():
            shares[f"{name}, {precision}"] = share = ratio * count / (ratio * count + ROUNDS * ROUND)
            print(f"{name:32s} {precision:8s}: {count:10,.0f} samples, {share:.1%} of a run of {ROUNDS} rounds")
    if arguments.json:
        arguments.json.write_text(json.dumps({"evaluation_cost": found, "evaluation_share": shares}))


if __name__ == "__main__":
    main()
