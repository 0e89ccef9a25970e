"""FedAvg rounds on FEMNIST's shape in two processes of one thread each, against one such process.

32 of 64 clients per round with 227 samples on average, the LEAF CNN; no evaluation. Both run the very same rounds,
alternately: the second process rests while the first one works alone. Where other work keeps the machine busy, time
says little; so the processor time of the busiest process is compared, too. Then the processes together are compared
with a bare PyTorch loop in one process, which has as many threads as they are, and last their training alone, without
the exchange of models: what remains is the bound that the cores themselves set.

    python tests/benchmarks/distributed_round.py [--pairs 5] [--ranks 2] [--clients 32] [--batch-size 64] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import socket
import time
from pathlib import Path

import torch
from floor import bare_round
from interleaved import Comparison, interleave
from random_images import plain_sgd, random_images
from train_cohort import train_cohort

from fedrun.config.build import option
from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.distributed_cohort import DistributedCohort
from fedrun.execution.in_process import InProcess
from fedrun.execution.launched_ranks import join
from fedrun.execution.ranks import Ranks
from fedrun.models.flat_network import FlatNetwork
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import CohortUpdate, ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.uploads.pipeline import UploadPipeline

LR = 0.01


def sizes(clients: int) -> list[int]:
    """Samples of each client: 227 on average, unequal like FEMNIST's writers."""
    draw = torch.Generator().manual_seed(0)
    return (227 + 80 * torch.randn(clients, generator=draw)).clamp(30, 420).int().tolist()


def work(number: int, ranks: int, clients: int, batch: int, pairs: int, port: int, file: Path | None) -> None:
    """One process: the first one measures, the others help it in every other round."""
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    everyone = join()
    held = sizes(2 * clients)
    data = random_images(sum(held))
    client_indices = ClientIndices(torch.arange(sum(held)), torch.tensor([0, *held]).cumsum(0))
    torch.manual_seed(0)
    built = option("model", "leaf_femnist_cnn").build(data.spec)
    plain, network = copy.deepcopy(built), FlatNetwork(built)
    start, server = network.vector.clone(), option("strategy/server", "fedavg")
    executor = InProcess(
        ExecutionContext(
            network=network,
            samples=Samples.of(data, torch.device("cpu")),
            clients=client_indices,
            client=option("strategy/client", "sgd"),
            local=plain_sgd(LR, batch),
            seed=0,
            pipeline=UploadPipeline((), network.layout, 0),
        )
    )
    team = DistributedCohort(executor, everyone, stateful=False)
    cohort = torch.randperm(2 * clients, generator=torch.Generator().manual_seed(1))[:clients]
    task = CohortJob(cohort, 0, {MODEL: start}, ClientStates())

    def trained() -> CohortUpdate:
        everyone.all_gather(None)  # all begin at once
        (share,) = team.local_jobs([task])
        return train_cohort(executor, server, ServerState(start), share)[0]

    def together() -> torch.Tensor:
        (update,) = team.combine([trained()], [cohort], [task.received])
        return update.mean[MODEL]

    def apart() -> None:
        trained()
        everyone.all_gather(None)  # all end at once

    def alone() -> torch.Tensor:
        return train_cohort(executor, server, ServerState(start), task)[0].mean[MODEL]

    ready = [(data.encoding(data.inputs[client_indices[k]]), data.targets[client_indices[k]]) for k in cohort.tolist()]

    def bare() -> object:
        torch.set_num_threads(ranks)
        averaged = bare_round(plain, ready, batch)
        torch.set_num_threads(1)
        return averaged

    if everyone.is_leader:
        difference = (together() - alone()).abs().max().item()
        assert difference < 1e-5, f"the two differ by {difference}"
        comparison, floor = interleave(together, alone, pairs), interleave(together, bare, pairs)
        bound = interleave(apart, bare, pairs)
    else:
        for _ in range(2 * pairs + 3):
            together()
        for _ in range(pairs + 1):
            apart()
    began = time.process_time()
    together()
    busiest = max(everyone.all_gather(time.process_time() - began))
    if everyone.is_leader:
        began = time.process_time()
        alone()
        report(everyone, batch, comparison, floor, bound, busiest / (time.process_time() - began), file)
    everyone.leave()


def report(
    everyone: Ranks,
    batch: int,
    comparison: Comparison,
    floor: Comparison,
    bound: Comparison,
    busy: float,
    file: Path | None,
) -> None:
    load = os.getloadavg()[0]
    faster = f"{1 / comparison.ratio:.2f} x as fast"
    print(f"FEMNIST rounds, batches of {batch}, {everyone.count} processes against 1: {comparison}; {faster}")
    print(f"against a bare loop of as many threads: {floor}")
    print(f"the same without the exchange of models: {bound}")
    print(f"processor time of the busiest process: {busy:.2f} x that of one alone (one measurement)")
    print(f"load average {load:.1f} on {os.cpu_count()} cores (with the machine to itself: {everyone.count})")
    if file:
        found = {
            "time": comparison.ratio,
            "bare": floor.ratio,
            "bound": bound.ratio,
            "processor_time": busy,
            "load": load,
        }
        file.write_text(json.dumps({f"distributed_round/{batch}": found}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = (given.ranks, given.clients, given.batch_size, given.pairs, port, given.json)
    torch.multiprocessing.spawn(work, arguments, nprocs=given.ranks)


if __name__ == "__main__":
    main()
