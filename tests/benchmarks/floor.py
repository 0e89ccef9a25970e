"""One round of FedAvg in process against a bare PyTorch loop that makes the same SGD steps.

Workloads: the LEAF CNN on FEMNIST's shape (8 clients x 227 samples on average) with batches of 64, as in TurboSVM-FL's
paper, and of 10, as in LEAF's; NIID-Bench's CNN on CIFAR's; LEAF's LSTM on Shakespeare's; logistic regression on 100
tiny clients, where what is done once per client counts; MNIST's 2NN on 20. Both start from the same model and visit the
same batches; the script first checks that both end at the same model.

    python tests/benchmarks/floor.py [--workloads femnist cifar ...] [--pairs 7] [--threads 1] [--clock cpu]
                                     [--executor in_process] [--precision float32] [--json FILE]

The clock ``cpu`` counts the seconds of this process's threads; with one thread it is little disturbed by other work.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from interleaved import CLOCKS, interleave
from random_images import FEMNIST, plain_sgd, random_images
from train_cohort import train_cohort

from fedrun.config.build import option
from fedrun.data.datasets.base import Dataset, Spec, Symbols
from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.executor_choice import EXECUTORS
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.precision import Precision
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.system.randomness import generator
from fedrun.uploads.pipeline import UploadPipeline

LR = 0.01  # small: rounding differences grow with the steps

TOLERANCE: dict[Precision, float] = {"float32": 1e-4, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Workload:
    """A round's work.

    Attributes:
        model: an option of ``conf/model``.
        spec: what the samples look like.
        sizes: samples of each client of the cohort.
        batch_size: of local SGD, one epoch.
        clients: in the federation, the cohort included.
        rounds: timed together.
    """

    model: str
    spec: Spec
    sizes: tuple[int, ...]
    batch_size: int
    clients: int
    rounds: int = 1


WRITERS = (140, 180, 205, 227, 227, 250, 274, 313)

WORKLOADS = {
    "femnist": Workload("leaf_femnist_cnn", FEMNIST, WRITERS, 64, 8),
    "femnist10": Workload("leaf_femnist_cnn", FEMNIST, WRITERS, 10, 8),
    "cifar": Workload("niid_simple_cnn", Spec((3, 32, 32), 10), (500,) * 4, 64, 4),
    "lstm": Workload("leaf_shakespeare_lstm", Spec((80,), 80, vocabulary=80), (30, 50), 10, 2),
    "tiny": Workload("logistic", Spec((1, 28, 28), 10), (100,) * 100, 10, 1000),
    "tiny60": Workload("logistic", Spec((60,), 10), (100,) * 100, 10, 1000),
    "2nn": Workload("mnist_2nn", Spec((1, 28, 28), 10), (100,) * 20, 10, 200),
}


def random_symbols(count: int, spec: Spec) -> Dataset:
    """Texts of random symbols."""
    random, names = torch.Generator().manual_seed(0), tuple(map(str, range(spec.classes)))
    texts = torch.randint(0, spec.vocabulary or 0, (count, *spec.input_shape), dtype=torch.uint8, generator=random)
    targets = torch.randint(0, spec.classes, (count,), generator=random)
    return Dataset(spec, Symbols(), texts, targets, count, None, names, "random")


def bare_round(
    network: torch.nn.Module, clients: list[tuple[torch.Tensor, torch.Tensor]], batch_size: int
) -> dict[str, torch.Tensor]:
    """A FedAvg round as anyone would write it, without a framework: the new global state_dict."""
    start = copy.deepcopy(network.state_dict())
    total = sum(len(targets) for _, targets in clients)
    average = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    for client, (inputs, targets) in enumerate(clients):
        network.load_state_dict(start)
        network.train()
        optimizer = torch.optim.SGD(network.parameters(), lr=LR)
        order = torch.randperm(len(targets), generator=generator(0, "batches", 0, client))
        for batch in order.split(batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs[batch]), targets[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for name, tensor in network.state_dict().items():
                average[name].add_(tensor, alpha=len(targets) / total)
    network.load_state_dict(start)
    return average


def rounds(load: Workload, executor: str, precision: Precision) -> tuple[Callable[[], object], Callable[[], object]]:
    """The workload's rounds by fedrun and by the bare loop, after a check that they do the same."""
    sizes = [*load.sizes, *(load.sizes[0] for _ in range(load.clients - len(load.sizes)))]
    make = random_images if load.spec.vocabulary is None else random_symbols
    data = make(sum(sizes), load.spec)
    clients = ClientIndices(torch.arange(sum(sizes)), torch.tensor([0, *sizes]).cumsum(0))
    torch.manual_seed(0)
    network = option("model", load.model).build(data.spec)
    plain = copy.deepcopy(network)
    flat = FlatNetwork(network)
    start, cohort = flat.vector.clone(), len(load.sizes)
    client, server = option("strategy/client", "sgd"), option("strategy/server", "fedavg")
    work = EXECUTORS[executor](
        ExecutionContext(
            network=flat,
            samples=Samples.of(data, torch.device("cpu")),
            clients=clients,
            client=client,
            local=replace(plain_sgd(LR, load.batch_size), precision=precision),
            seed=0,
            pipeline=UploadPipeline((), flat.layout, 0),
        )
    )
    task = CohortJob(torch.arange(cohort), 0, {MODEL: start}, ClientStates())
    # The bare loop may keep its data as ready tensors; fedrun gathers and encodes uint8 as it goes.
    ready = [(data.encoding(data.inputs[clients[k]]), data.targets[clients[k]]) for k in range(cohort)]

    def fedrun_round() -> torch.Tensor:
        update, _ = train_cohort(work, server, ServerState(start), task)
        return update.mean[MODEL]

    ours, bare = flat.layout.views(fedrun_round()), bare_round(plain, ready, load.batch_size)
    difference = max((ours[name] - bare[name]).abs().max().item() for name in ours)
    # channels-last kernels add up in another order, which some tens of steps enlarge
    assert difference < TOLERANCE[precision], f"the two loops differ by {difference}"
    return (
        lambda: [fedrun_round() for _ in range(load.rounds)],
        lambda: [bare_round(plain, ready, load.batch_size) for _ in range(load.rounds)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--executor", choices=EXECUTORS, default="in_process")
    parser.add_argument(
        "--precision", choices=TOLERANCE, default="float32", help="of fedrun; the bare loop's is float32"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    ratios = {}
    for name in arguments.workloads:
        ours, bare = rounds(WORKLOADS[name], arguments.executor, arguments.precision)
        comparison = interleave(ours, bare, arguments.pairs, CLOCKS[arguments.clock])
        ratios[name] = comparison.ratio
        print(f"{name:8s} {arguments.executor} against a bare loop: {comparison}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({f"floor/{arguments.executor}/{arguments.precision}": ratios}))


if __name__ == "__main__":
    main()
