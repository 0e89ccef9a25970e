"""A round of CelebA with freed memory kept, against one with glibc's own way: the system's and the user's seconds.

    python tests/benchmarks/large_activations.py [--pairs 5] [--json FILE]

Eight clients of 21 random photographs each, LEAF's CNN, one thread. The baseline maps blocks above 32 MiB and gives
free memory above 64 MiB back, the most to which glibc goes by itself. Needs glibc.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from interleaved import CLOCKS, interleave
from random_images import plain_sgd, random_images

from fedrun.config.build import option
from fedrun.data.datasets.base import Spec
from fedrun.data.samples import Samples
from fedrun.execution.allocator import keep_freed_memory, set_thresholds
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.inference import evaluate
from fedrun.training.client_round import ClientRound
from fedrun.training.train import train

CELEBA = Spec((3, 84, 84), 2)
CLIENTS, SAMPLES, TESTED, BATCH = 8, 21, 512, 256
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dataset = random_images(CLIENTS * SAMPLES + TESTED, CELEBA, train_size=CLIENTS * SAMPLES)
    samples = Samples.of(dataset, torch.device("cpu"))
    network = FlatNetwork(option("model", "leaf_celeba_cnn").build(CELEBA))
    local, client = plain_sgd(lr=0.01, batch_size=64), option("strategy/client", "sgd")

    def a_round() -> None:
        for own in torch.arange(CLIENTS * SAMPLES).split(SAMPLES):
            work = ClientRound(network, client, local, samples, own, local.lr, {})
            train(work, -(-SAMPLES // 64), torch.Generator().manual_seed(0))
        evaluate(network, samples, torch.arange(CLIENTS * SAMPLES, len(dataset.targets)), BATCH)

    def kept() -> None:
        if not keep_freed_memory():
            raise SystemExit("this C library has no such settings")
        a_round()

    def given_back() -> None:
        set_thresholds(mapped_from=32 * MIB, given_back_from=64 * MIB)
        a_round()

    found = {}
    for name, clock in CLOCKS.items():
        comparison = interleave(kept, given_back, arguments.pairs, clock)
        print(f"{name}: {comparison}")
        found[f"large_activations/{name}"] = comparison.ratio
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
