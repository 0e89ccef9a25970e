"""What it takes to start: the first round on scikit-learn's digits, `fedrun --help`, and a job of a sweep.

In turn, in fresh processes: an interpreter that imports torch and ends, and `fedrun`, until the first round stands in
the run's metrics; an interpreter that imports Hydra and rich, and `fedrun --help`. Once before, so that files lie in
the system's cache and modules are compiled. Both in seconds that pass, which need the machine to itself, and in the
processor's. A job of a sweep costs what 60 more jobs of one round add to a sweep of three, per job: with the round, its
evaluation, and the run's files and pictures.

    python tests/benchmarks/cold_start.py [--pairs 5] [--threads 1] [--jobs 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which a start that has not come to an end is an error."""


@dataclass(frozen=True)
class Taken:
    """What something took, in seconds.

    Attributes:
        wall: that passed.
        cpu: of the processor.
    """

    wall: float
    cpu: float


def processor_seconds(process: int) -> float:
    """What a living process has used so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def finished(*command: str) -> Taken:
    """A Python command, from start to end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def importing(modules: str) -> Taken:
    """An interpreter that imports modules."""
    return finished("-c", f"import {modules}")


def sweep(jobs: int) -> Taken:
    """A sweep of jobs of one round."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"seed=range({jobs})", "rounds=1", f"output_dir={folder}", "tracking=none", "display=none"]
        return finished("-m", "fedrun", "-m", *settings)


def first_round(threads: int) -> Taken:
    """The default run, until its first round has been evaluated and written down."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"output_dir={folder}", "tracking=none", "display=plain", f"hardware.threads={threads}"]
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "fedrun", *settings], stdout=subprocess.DEVNULL)
        try:
            while process.poll() is None and time.perf_counter() - began < PATIENCE:
                if any(b'"round": 1,' in found.read_bytes() for found in Path(folder).rglob("metrics.jsonl")):
                    return Taken(time.perf_counter() - began, processor_seconds(process.pid))
                time.sleep(0.005)
        finally:
            process.terminate()
            process.wait()
    raise RuntimeError("no first round")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    importing("torch"), first_round(arguments.threads)
    times = [(importing("torch"), first_round(arguments.threads)) for _ in range(arguments.pairs)]
    beyond = {
        clock: statistics.median(getattr(start, clock) - getattr(torch, clock) for torch, start in times)
        for clock in ("wall", "cpu")
    }
    torch = {clock: statistics.median(getattr(each, clock) for each, _ in times) for clock in ("wall", "cpu")}
    print(f"import torch: {torch['wall']:.2f} s, {torch['cpu']:.2f} s of the processor (medians of {len(times)})")
    print(f"to the first round beyond it: {beyond['wall']:.2f} s, {beyond['cpu']:.2f} s of the processor")
    importing("hydra, rich"), finished("-m", "fedrun", "--help")
    helps = [(importing("hydra, rich"), finished("-m", "fedrun", "--help")) for _ in range(arguments.pairs)]
    times_hydra = {
        clock: statistics.median(getattr(shown, clock) / getattr(hydra, clock) for hydra, shown in helps)
        for clock in ("wall", "cpu")
    }
    print(f"fedrun --help: {times_hydra['wall']:.2f} x import hydra, rich; {times_hydra['cpu']:.2f} x of the processor")
    few, many = sweep(3), sweep(3 + arguments.jobs)
    job = {clock: (getattr(many, clock) - getattr(few, clock)) / arguments.jobs for clock in ("wall", "cpu")}
    print(f"a job of a sweep: {job['wall']:.2f} s, {job['cpu']:.2f} s of the processor")
    if arguments.json:
        measured = {"import_torch": torch, "beyond": beyond, "help": times_hydra, "job": job}
        arguments.json.write_text(json.dumps({"cold_start": measured}))


if __name__ == "__main__":
    main()
