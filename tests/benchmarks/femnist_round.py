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

from fedrun.client_memory import ClientMemory
from fedrun.config import option
from fedrun.datasets.base import Dataset, Scaled, Spec
from fedrun.executors.base import Workplace
from fedrun.executors.in_process import InProcess
from fedrun.federation import Shares
from fedrun.parameters import FlatNetwork
from fedrun.randomness import generator
from fedrun.strategies.base import MODEL
from fedrun.training import LocalTraining, Samples

SIZES = (140, 180, 205, 227, 227, 250, 274, 313)
BATCH, LR = 64, 0.1


def dataset() -> Dataset:
    """Random images and labels of FEMNIST's shape."""
    random = torch.Generator().manual_seed(0)
    total = sum(SIZES)
    spec = Spec((1, 28, 28), 62)
    inputs = torch.randint(0, 256, (total, 1, 28, 28), dtype=torch.uint8, generator=random)
    targets = torch.randint(0, 62, (total,), generator=random)
    names = tuple(map(str, range(62)))
    return Dataset(spec, Scaled(255.0), inputs, targets, total, None, names, "random")


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

    data = dataset()
    offsets = torch.tensor([0, *SIZES]).cumsum(0)
    shares = Shares(torch.arange(sum(SIZES)), offsets)
    torch.manual_seed(0)
    network = option("model", "leaf_femnist_cnn").build(data.spec)
    plain = copy.deepcopy(network)
    flat = FlatNetwork(network)
    start = flat.vector.clone()
    local = LocalTraining(
        lr=LR,
        lr_decay=1.0,
        momentum=0.0,
        weight_decay=0.0,
        batch_size=BATCH,
        epochs=1,
        steps=None,
        max_gradient_norm=None,
        repair_nonfinite=False,
    )
    samples = Samples.of(data, torch.device("cpu"))
    client, server = option("strategy/client", "sgd"), option("strategy/server", "fedavg")
    executor = InProcess(Workplace(flat, samples, shares, client, server, local, seed=0))
    cohort, memory = torch.arange(len(SIZES)), ClientMemory((), flat.layout.trainable)
    # The bare loop may keep its data as ready float32 tensors; fedrun gathers and encodes uint8 as it goes.
    clients = [(data.encoding(data.inputs[shares[k]]), data.targets[shares[k]]) for k in range(len(SIZES))]

    def fedrun_round() -> torch.Tensor:
        update, _ = executor.run(cohort, 0, {MODEL: start}, memory, lambda done: None)
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
