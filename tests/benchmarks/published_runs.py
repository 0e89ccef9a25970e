"""Whether today's code gives the numbers of the published runs: their first rounds are computed again and compared.

    python tests/benchmarks/published_runs.py docs/runs/*.tar.xz [--rounds 1] [--only fedconcat/table1 ...] [--seeds 0]

Run it in the folder in which data/ is. Each run is computed from its overrides and its learning rate, by its executor,
in one process and thread, up to --rounds or to the first evaluated round. Then every number of the rows, but times, is
compared with the recorded one. Some settings amplify rounding, which depends on the processor, within one round. So if
a number differs by more than 0.01 %, the run is also computed by the code of its commit, and compared with that.

Printed are the largest relative difference of each run, and for every table the number of its runs and of identical
ones. It is also checked that a run's overrides still give its configuration.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import fedrun
from fedrun.config.composed import compose
from fedrun.experiment.experiment import build_experiment
from fedrun.experiment.observer import Row, round_of
from fedrun.report.runs import Run, find
from fedrun.system.yaml_file import read_yaml

HERE = Path(__file__).parents[2]

AMPLIFIED = 1e-4
"""Runs with a larger difference are also computed by the code of their commit."""

ROWS = """
import json, sys
from pathlib import Path
import fedrun

overrides, rounds, tests, cache = json.loads(sys.argv[1])
simulation = fedrun.Simulation(fedrun.build_experiment(fedrun.compose(overrides)), cache=Path(cache))
state, metrics, rows = simulation.initial(), {}, {}
while True:
    if state.round in rounds:
        rows[state.round] = {**(simulation.test(state) if tests else {}), **metrics}
    if state.round >= max(rounds):
        break
    state, metrics = simulation.advance(state)
print(json.dumps(rows))
"""
"""A program that prints the rows of some rounds. It uses fedrun's public functions only, so that it works with earlier
commits, too."""


def computed(code: Path, run: Run, rounds: set[int], cache: Path) -> dict[int, Row]:
    """The rows of some rounds of a run, computed from its overrides by the executor of its first phase, in one thread.

    Args:
        code: a checkout of fedrun.
        run: a published run.
        rounds: the rounds to evaluate.
        cache: folder for thresholds that several runs share.

    Raises:
        FailedError: the program failed; its last line.
    """
    executor = str((run.summary or {})["decisions"]["machine"]).rpartition("executor ")[2].split()[0]
    overrides = [*recorded_overrides(run), f"local.lr={run.config['local']['lr']}"]  # which a file may have set
    overrides += [f"hardware.executor={executor}", "hardware.threads=1"]
    # with early rejection, rows have other metrics
    arguments = json.dumps([overrides, sorted(rounds), not run.config["evaluation"].get("adaptive"), str(cache)])
    # -P: the current folder, which may be a checkout of fedrun, is not searched first
    command = [sys.executable, "-P", "-W", "ignore", "-c", ROWS, arguments]
    environment = {**os.environ, "PYTHONPATH": str(code)}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise FailedError(done.stderr.strip().rpartition("\n")[2])
    return {int(round): row for round, row in json.loads(done.stdout).items()}


class FailedError(Exception):
    """A program failed."""


def recorded_overrides(run: Run) -> list[str]:
    """The overrides of the run's command, without those of the hardware, which change no number but by rounding."""
    overrides = map(str, read_yaml(run.folder / ".hydra" / "overrides.yaml"))
    return [override for override in overrides if not override.startswith("hardware.")]


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


def repeats(run: Run) -> bool:
    """Whether the run's overrides give its configuration today."""
    composed = build_experiment(compose(recorded_overrides(run)))
    return composed.record.hash == fedrun.load(run.folder).experiment.record.hash


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The code of a commit, in a folder of its own."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["git", "-C", str(HERE), "worktree", "add", "-q", "--detach", place, commit], check=True)
        try:
            yield Path(place)
        finally:
            subprocess.run(["git", "-C", str(HERE), "worktree", "remove", "--force", place], check=True)


def compared(run: Run, rounds: int, cache: Path) -> tuple[float, str]:
    """The largest relative difference from a published run, and what to print about it.

    Raises:
        FailedError: the run cannot be computed, such as without its data.
    """
    last = max(rounds, round_of(run.rows[1]))
    recorded = {round_of(row): row for row in run.rows if round_of(row) <= last}
    rows = computed(HERE, run, set(recorded), cache / "today")
    largest, where = difference(rows, recorded)
    text = f"{largest:.1e}{where}"
    if largest > AMPLIFIED:
        commit = str((run.summary or {})["versions"]["commit"])
        with checkout(commit) as code:
            largest, where = difference(rows, computed(code, run, set(recorded), cache / commit))
        text += f"; from the code of commit {commit} {largest:.1e}{where}"
    return largest, text


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
            name, shown, began = str(run.config["name"]), run.folder.relative_to(place), time.perf_counter()
            if not name.startswith(tuple(arguments.only)) or run.seed not in (arguments.seeds or (run.seed,)):
                continue
            if not repeats(run):
                print(f"{shown}: its overrides alone give another configuration", flush=True)
            try:
                found, text = compared(run, arguments.rounds, Path(place))
            except FailedError as error:
                print(f"{shown}: not compared: {error}", flush=True)
                continue
            largest[name].append(found)
            print(f"{shown}: {text}; {time.perf_counter() - began:.0f} s", flush=True)
    for name, every in largest.items():
        equal, close = (sum(found <= bound for found in every) for bound in (0, AMPLIFIED))
        print(f"{name}: {len(every)} runs, {equal} identical, {close} to {AMPLIFIED:g}, largest {max(every):.1e}")


if __name__ == "__main__":
    main()
