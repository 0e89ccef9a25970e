"""One round of FedAvg on FEMNIST's shape against a bare PyTorch loop that makes the same SGD steps.

8 clients x 227 samples on average, batches of 64, the LEAF CNN. Both start from the same model and visit the same
batches; the script first checks that both end at the same model.

    python tests/benchmarks/femnist_round.py [--pairs 7] [--threads 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path

import torch
from interleaved import interleave
from random_images import plain_sgd, random_images

from fedrun.config import option
from fedrun.executors.base import NOTHING, Task, Workplace
from fedrun.executors.in_process import InProcess
from fedrun.federation import Shares
from fedrun.parameters import FlatNetwork
from fedrun.randomness import generator
from fedrun.strategies.base import MODEL, ServerState
from fedrun.training import Samples

SIZES = (140, 180, 205, 227, 227, 250, 274, 313)
BATCH, LR = 64, 0.1


def bare_round(network: torch.nn.Module, clients: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A FedAvg round as anyone would write it, without a framework: the new global state_dict."""
    start = copy.deepcopy(network.state_dict())
    total = sum(len(targets) for _, targets in clients)
    average = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    for client, (inputs, targets) in enumerate(clients):
        network.load_state_dict(start)
        network.train()
        optimizer = torch.optim.SGD(network.parameters(), lr=LR)
        order = torch.randperm(len(targets), generator=generator(0, "batches", 0, client))
        for batch in order.split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for name, tensor in network.state_dict().items():
                average[name].add_(tensor, alpha=len(targets) / total)
    network.load_state_dict(start)
    return average


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    data = random_images(sum(SIZES))
    offsets = torch.tensor([0, *SIZES]).cumsum(0)
    shares = Shares(torch.arange(sum(SIZES)), offsets)
    torch.manual_seed(0)
    network = option("model", "leaf_femnist_cnn").build(data.spec)
    plain = copy.deepcopy(network)
    flat = FlatNetwork(network)
    start = flat.vector.clone()
    samples = Samples.of(data, torch.device("cpu"))
    client, server = option("strategy/client", "sgd"), option("strategy/server", "fedavg")
    work = Workplace(network=flat, samples=samples, clients=shares, client=client, local=plain_sgd(LR, BATCH), seed=0)
    executor = InProcess(work)
    task = Task(torch.arange(len(SIZES)), 0, {MODEL: start}, NOTHING)
    # The bare loop may keep its data as ready float32 tensors; fedrun gathers and encodes uint8 as it goes.
    clients = [(data.encoding(data.inputs[shares[k]]), data.targets[shares[k]]) for k in range(len(SIZES))]

    def fedrun_round() -> torch.Tensor:
        update, _ = executor.run(server, ServerState(start), task, lambda done: None)
        return update.mean[MODEL]

    ours, bare = flat.layout.views(fedrun_round()), bare_round(plain, clients)
    difference = max((ours[name] - bare[name]).abs().max().item() for name in ours)
    assert difference < 1e-5, f"the two loops differ by {difference}"

    comparison = interleave(fedrun_round, lambda: bare_round(plain, clients), arguments.pairs)
    print(f"FEMNIST round, fedrun in process against a bare loop: {comparison}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"femnist_round": comparison.ratio}))


if __name__ == "__main__":
    main()
