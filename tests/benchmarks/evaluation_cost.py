"""What evaluating the global model costs beside training: FEMNIST's shape, the LEAF CNN.

Interleaved are the evaluation of 2 000 samples, in float32 and in bfloat16, and training on as many (batches of 64).
From the ratios follows what the 80 000 samples of 355 held-out users cost, in rounds of 8 clients x 227 samples.

    python tests/benchmarks/evaluation_cost.py [--pairs 5] [--threads 1] [--clock cpu] [--batch-size 256] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_args

import torch
from interleaved import CLOCKS, interleave
from random_images import plain_sgd, random_images

from fedrun.config import option
from fedrun.evaluation import Precision, evaluate
from fedrun.parameters import FlatNetwork
from fedrun.training import Samples, train

SAMPLES, TEST, ROUND = 2000, 80_000, 8 * 227


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
    if arguments.json:
        arguments.json.write_text(json.dumps({"evaluation_cost": found}))


if __name__ == "__main__":
    main()
