"""Whether today's code gives the numbers of the published runs: their first rounds are computed again and compared.

    python tests/benchmarks/published_runs.py docs/runs/*.tar.xz [--rounds 1] [--only fedconcat/table1 ...] [--seeds 0]

Run it in the folder in which data/ is. Each run is computed from its recorded configuration, by its executor, in one
process and thread, up to --rounds or to the first evaluated round. Then every number of the rows, but times, is
compared with the recorded one. Printed are the largest relative difference of each run, and for every table the number
of its runs and of identical ones. It is also checked that a run's overrides still give its configuration.

Rounding depends on the processor and the versions of the packages, and some settings amplify it within one round. So a
run with a larger difference is also computed from initial weights that are changed by a relative 10⁻⁷.
"""

from __future__ import annotations

import argparse
import math
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

import fedrun
from fedrun.config.composed import compose
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.experiment.observer import Row, round_of
from fedrun.report.runs import Run, find
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.system.yaml_file import read_yaml

CHANGE = 1e-7
"""Relative change of the initial weights, of the size of rounding."""

AMPLIFIED = 1e-4
"""Larger differences are compared with those after a change of the initial weights."""


def computed(experiment: Experiment, rounds: set[int], cache: Path, change: float = 0.0) -> dict[int, Row]:
    """The rows of some rounds.

    Args:
        experiment: a run's experiment.
        rounds: the rounds to evaluate.
        cache: folder for thresholds that several runs share.
        change: relative standard deviation of a change of the initial weights.

    Raises:
        InputError: the run's data are missing.
    """
    simulation = Simulation(experiment, cache=cache)
    state, metrics = simulation.initial(), {}
    random = torch.Generator().manual_seed(0)
    for server in state.models if change else ():
        server.model.mul_(1 + change * torch.randn(len(server.model), generator=random))
    rows: dict[int, Row] = {}
    while True:
        if state.round in rounds:
            tested = {} if experiment.evaluation.adaptive else simulation.test(state)
            rows[state.round] = {**tested, **metrics}
        if state.round >= max(rounds):
            return rows
        state, metrics = simulation.advance(state)


def difference(rows: Mapping[int, Row], others: Mapping[int, Row]) -> tuple[float, str]:
    """The largest relative difference of the numbers that rows of the same round have in common, and the number's name.

    0 and no name if all are equal.
    """
    found = [(0.0, "")]
    for round, row in rows.items():
        for name in row.keys() & others[round].keys():
            if name.startswith("time/") or others[round][name] is None:
                continue
            one, other = float(row[name]), float(others[round][name])
            if one != other and not (math.isnan(one) and math.isnan(other)):
                found.append((abs(one - other) / max(abs(one), abs(other)), f" in round {round} {name}"))
    return max(found)


def as_recorded(run: Run) -> Experiment:
    """The run's experiment, by the executor of its first phase, in one thread."""
    experiment = fedrun.load(run.folder).experiment
    executor = str((run.summary or {})["decisions"]["machine"]).rpartition("executor ")[2]
    return replace(experiment, hardware=replace(experiment.hardware, threads=1, executor=executor))


def repeats(run: Run) -> bool:
    """Whether the run's overrides give its configuration today."""
    overrides = read_yaml(run.folder / ".hydra" / "overrides.yaml")
    return build_experiment(compose(overrides)).record.hash == fedrun.load(run.folder).experiment.record.hash


def compared(run: Run, rounds: int, cache: Path) -> tuple[float, str]:
    """The largest relative difference from a published run, and what to print about it.

    Raises:
        InputError: the run's data are missing.
    """
    began, last = time.perf_counter(), max(rounds, round_of(run.rows[1]))
    recorded = {round_of(row): row for row in run.rows if round_of(row) <= last}
    experiment = as_recorded(run)
    rows = computed(experiment, set(recorded), cache)
    largest, where = difference(rows, recorded)
    text = f"{largest:.1e}{where}"
    if largest > AMPLIFIED:
        amplified, where = difference(computed(experiment, set(recorded), cache, CHANGE), rows)
        text += f"; after a change of the initial weights {amplified:.1e}{where}"
    return largest, f"{text}; {time.perf_counter() - began:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of names, such as fedconcat/table1")
    parser.add_argument("--seeds", type=int, nargs="+")
    arguments = parser.parse_args()
    largest: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as place:
        for archive in arguments.archives:
            with tarfile.open(archive) as file:
                file.extractall(place, filter="data")
        for run in sorted(find([place]).runs, key=lambda run: str(run.folder)):
            name, shown = str(run.config["name"]), run.folder.relative_to(place)
            if not name.startswith(tuple(arguments.only)) or run.seed not in (arguments.seeds or (run.seed,)):
                continue
            if not repeats(run):
                print(f"{shown}: its overrides alone give another configuration", flush=True)
            try:
                found, text = compared(run, arguments.rounds, Path(place))
            except InputError as error:
                print(f"{shown}: not compared: {error}", flush=True)
                continue
            largest[name].append(found)
            print(f"{shown}: {text}", flush=True)
    for name, every in largest.items():
        equal, close = (sum(found <= bound for found in every) for bound in (0, AMPLIFIED))
        print(f"{name}: {len(every)} runs, {equal} identical, {close} to {AMPLIFIED:g}, largest {max(every):.1e}")


if __name__ == "__main__":
    main()
