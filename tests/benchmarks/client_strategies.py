"""What every client strategy costs over plain SGD: one client's round on the FEMNIST CNN, per strategy.

The client has taken part before, so that client states are not empty; 30 steps with batches of 64.

    python tests/benchmarks/client_strategies.py [--pairs 7] [--threads 1] [--clock cpu] [--steps 30] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from interleaved import CLOCKS, interleave
from random_images import FEMNIST, plain_sgd, random_images

from fedrun.config.build import option
from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.in_process import InProcess
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.vectors import MODEL
from fedrun.uploads.pipeline import UploadPipeline

BATCH = 64
BOUNDS = {"fedprox": 1.15, "scaffold": 1.15, "feddyn": 1.15, "feddc": 1.15, "fedrs": 1.05, "fedlc": 1.05, "moon": 1.9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    data = random_images(BATCH * arguments.steps)
    clients = ClientIndices(torch.arange(len(data.targets)), torch.tensor([0, len(data.targets)]))
    torch.manual_seed(0)
    network = FlatNetwork(option("model", "leaf_femnist_cnn").build(FEMNIST))
    samples, start = Samples.of(data, torch.device("cpu")), network.vector.clone()

    def round_of(name: str):
        client, layout = option("strategy/client", name), network.layout
        local = plain_sgd(0.1, BATCH)
        executor = InProcess(
            ExecutionContext(
                network=network,
                samples=samples,
                clients=clients,
                client=client,
                local=local,
                seed=0,
                pipeline=UploadPipeline((), layout, 0),
            )
        )
        received = {MODEL: start} | {
            sent: torch.zeros(layout.trainable)
            for sent in client.needs
            if sent not in client.client_state(layout) or name != "feddyn"
        }
        once = CohortJob(torch.tensor([0]), 0, received, ClientStates())
        (result,) = executor.client_results(once)
        kept = once.client_states.updated({0: once.client_states.keep(result.client_state)})
        again = CohortJob(once.cohort, 1, received, kept)
        return lambda: [result.trained for result in executor.client_results(again)]

    plain, ratios = round_of("sgd"), {}
    for name, bound in BOUNDS.items():
        comparison = interleave(round_of(name), plain, arguments.pairs, CLOCKS[arguments.clock])
        ratios[name] = comparison.ratio
        print(f"{name:10s} against SGD: {comparison}; at most {bound} wanted")
    if arguments.json:
        arguments.json.write_text(json.dumps({"client_strategies": ratios}))


if __name__ == "__main__":
    main()
