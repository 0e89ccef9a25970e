"""How long the papers' tables take at a scale, without making them: processor time of one thread, table by table.

Of every cell of a sweep only some rounds of every stage are made, on random samples in the published dataset's numbers;
the rest follows from the numbers of rounds, evaluations and seeds. Runs that end at their targets are counted to their
last round. An evaluation that is adaptive is counted as 0.05 of a full one (`evaluation_cost.py` finds 0.03), and each
target that is reached as a full one.

    python tests/benchmarks/table_times.py [--scale small] [--tables turbosvm/table2 ...] [--rounds 3] [--json FILE]

Start-up (some seconds per run) is not counted. Several jobs at once (`make turbosvm-table2 JOBS=2`) share the cores: on
two, a table takes a little more than half of its processor time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import torch

from fedrun.config.composed import compose
from fedrun.config.experiments import experiment_sweep
from fedrun.config.options import options
from fedrun.data.datasets.base import Dataset, DatasetConfig, Scaled, Symbols, Users
from fedrun.data.datasets.colour import ColourImages
from fedrun.data.datasets.in_memory import InMemory
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.simulation.simulation import Simulation

ADAPTIVE = 0.05
"""Of the test samples, those that an adaptive evaluation looks at."""

PUBLISHED = {  # training and test samples
    "mnist": (60_000, 10_000),
    "fmnist": (60_000, 10_000),
    "emnist": (697_932, 116_323),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "tinyimagenet": (100_000, 10_000),
}

USERS = {  # users and samples of each, on average; a tenth of the users are test users
    "femnist": (3550, 227),
    "celeba": (9343, 21),
    "shakespeare": (660, 6400),
}


@cache
def stand_in(name: str, config: DatasetConfig) -> InMemory:
    """Random samples in a published dataset's shape and numbers."""
    spec, users, augmentation, encoding = config.spec, None, None, Scaled(255.0)
    if name in USERS:
        count, each = USERS[name]
        train, test = count * each * 9 // 10, count * each - count * each * 9 // 10
        names = tuple(map(str, range(count)))
        users = Users(names, torch.arange(count + 1) * each, count * 9 // 10)
        train = users.training * each
        test = count * each - train
    else:
        train, test = PUBLISHED[name]
    if isinstance(config, ColourImages):
        encoding, augmentation = Scaled(255.0, config.mean, config.std), config.augmentation
    draw = torch.Generator().manual_seed(0)
    shape, top = (train + test, *spec.input_shape), 256
    if name == "shakespeare":
        top = spec.classes
    inputs = torch.randint(0, top, shape, dtype=torch.uint8, generator=draw)
    targets = torch.randint(0, spec.classes, (train + test,), generator=draw)
    classes = tuple(map(str, range(spec.classes)))
    read = Symbols() if name == "shakespeare" else encoding
    return InMemory(Dataset(spec, read, inputs, targets, train, users, classes, "random", augmentation))


def cells(table: str, scale: str) -> dict[str, tuple[Experiment, int]]:
    """The experiments of a table's sweep, without their seeds, and how many runs each has."""
    jobs = experiment_sweep(table).jobs(scale)
    experiments = [build_experiment(compose(job)) for job in jobs]
    count = Counter(experiment.record.hash for experiment in experiments)
    return {experiment.record.hash: (experiment, count[experiment.record.hash]) for experiment in experiments}


def evaluations(experiment: Experiment) -> float:
    """How many full evaluations a run makes, as an estimate."""
    how, rounds = experiment.evaluation, experiment.rounds
    times = rounds // how.every + 1
    if not how.adaptive:
        return float(times + (rounds % how.every > 0))
    full = 1 + len(experiment.targets) + (0 if how.full_every is None else (rounds - 1) // how.full_every)
    return full + ADAPTIVE * (times - full)


def seconds(experiment: Experiment, measured: int) -> float:
    """Of one run."""
    began = time.process_time()
    simulation = Simulation(experiment)
    state = simulation.initial()
    _ = simulation.thresholds
    total = time.process_time() - began
    for first, last in ((0, experiment.first_rounds), (experiment.first_rounds, experiment.rounds)):
        state, taken = replace(state, round=first), []
        for _ in range(min(measured, last - first)):
            began = time.process_time()
            state, _ = simulation.advance(state)
            taken.append(time.process_time() - began)
        if taken:  # the first round of a stage may do more than the others
            total += sum(taken) + (last - first - len(taken)) * median(taken[1:] or taken)
    began = time.process_time()
    simulation.test(state)
    return total + evaluations(experiment) * (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="small")
    parser.add_argument("--tables", nargs="+", default=[n for n in options("experiment") if "/table" in n])
    parser.add_argument("--rounds", type=int, default=3, help="of every stage of every cell that are really made")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, float] = {}
    for table in arguments.tables:
        runs = 0
        for cell, count in cells(table, arguments.scale).values():
            experiment, record = cell, cell.record
            name = record.dataset
            if name in {*PUBLISHED, *USERS}:
                experiment = replace(experiment, dataset=stand_in(name, experiment.dataset))
            hardware = replace(experiment.hardware, threads=1)
            each = seconds(replace(experiment, hardware=hardware), arguments.rounds)
            print(f"    {count} x {each / 60:6.1f} min  {record.strategy}  {record.hash}", flush=True)
            found[table] = found.get(table, 0.0) + count * each / 60
            runs += count
        print(f"{table}: {math.ceil(found[table])} min for {runs} runs", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"table_times": {"scale": arguments.scale, "minutes": found}}))


if __name__ == "__main__":
    main()
