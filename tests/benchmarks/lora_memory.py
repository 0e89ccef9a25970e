"""Memory of FedIT on a BERT of about 100 million parameters with random weights: rounds of 8 clients in process.

    python tests/benchmarks/lora_memory.py [--rounds 1] [--clients 8]

Prints the size of the base, of θ, and the process's largest resident size: after the libraries were imported, after the
simulation was built, and after the rounds. One copy of the base and a few vectors of adapters should explain the
difference, with what one batch's activations take.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch
from peak_memory import peak

from fedrun.config.build import option
from fedrun.config.composed import compose
from fedrun.data.datasets.base import Dataset, Spec, Symbols
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import build_experiment
from fedrun.models.lora import LoRA
from fedrun.simulation.simulation import Simulation

SPEC = Spec((16,), 4, vocabulary=30000)

MIB = 2**20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, SPEC.vocabulary, (4 * arguments.clients + 4, 16), generator=draw).to(torch.int32)
    names = tuple(map(str, range(4)))
    data = Dataset(SPEC, Symbols(), inputs, inputs[:, 0].long() % 4, 4 * arguments.clients, None, names, "random")
    overrides = [
        "strategy=fedit",
        "partition=iid",
        f"partition.clients={arguments.clients}",
        f"clients_per_round={arguments.clients}",
        "local.batch_size=4",
        "hardware.threads=1",
        "hardware.executor=in_process",
    ]
    model = replace(
        option("model", "transformers"),
        config={"model_type": "bert", "num_hidden_layers": 11},
        lora=LoRA(rank=8, alpha=16.0, targets=("query", "value"), dropout=0.0),
    )
    experiment = replace(build_experiment(compose(overrides)), dataset=InMemory(data), model=model)
    import peft  # noqa: F401  # its memory is not part of the simulation's
    import transformers  # noqa: F401  # likewise

    before = peak()
    simulation = Simulation(experiment)
    base, theta = simulation.network.frozen_size, simulation.network.layout.size
    built = peak()
    state = simulation.initial()
    for _ in range(arguments.rounds):
        state, _ = simulation.advance(state)
    print(f"base {base:,} parameters = {4 * base / MIB:.0f} MiB; theta {theta:,} entries = {4 * theta / MIB:.2f} MiB")
    sizes = [round(each / MIB) for each in (before, built, peak())]
    print("largest resident size: {} MiB after imports, {} built, {} after the rounds".format(*sizes))
    print(f"above imports: {(peak() - before) / MIB:.0f} MiB = {(peak() - before) / (4 * base):.2f} bases")


if __name__ == "__main__":
    main()
