"""Five seeds of a run in parallel against five in a row, in seconds that pass; it needs the machine to itself.

FedAvg on scikit-learn's digits, once with `hydra/launcher=basic`, once in parallel, in processes of one thread. Five
equal jobs on two cores take as long as three in a row if two run at a time, and as two and a half if all do. What is
saved grows with the length of a job, since a sweep has to start and to end. Runs in a row have all cores, unless
``--threads 1`` gives them what those in parallel have.

Another run by `--set`: `dataset=fmnist data_dir=DATA model=niid_simple_cnn partition.clients=100 clients_per_round=5`.

    python tests/benchmarks/sweep.py [--rounds 300] [--seeds 5] [--jobs CORES] [--threads N] [--pairs 1]
        [--set KEY=VALUE ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def sweep(seeds: int, rounds: int, *more: str) -> tuple[float, dict[int, float]]:
    """Seconds of a sweep, and the final test loss of every seed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fedrun", "-m", "seed=" + ",".join(map(str, range(seeds)))]
        settings = [f"rounds={rounds}", "evaluation.every=10", "tracking=none", "display=none", f"output_dir={folder}"]
        began = time.perf_counter()
        subprocess.run([*command, *settings, *more], check=True, stdout=subprocess.DEVNULL)
        taken = time.perf_counter() - began
        summaries = [json.loads(path.read_text()) for path in Path(folder).rglob("summary.json")]
    return taken, {summary["seed"]: summary["final"]["test/loss"] for summary in summaries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--threads", type=int, help="of runs in a row; all cores unless given")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], help="further keys of the runs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    parallel = (f"hydra.launcher.jobs={arguments.jobs}", "hardware.threads=1")
    alone = ["hydra/launcher=basic"]
    if arguments.threads is not None:
        alone.append(f"hardware.threads={arguments.threads}")
    ratios = []
    for _ in range(arguments.pairs):
        together, some = sweep(arguments.seeds, arguments.rounds, *parallel, *arguments.set)
        in_a_row, others = sweep(arguments.seeds, arguments.rounds, *alone, *arguments.set)
        assert len(some) == arguments.seeds
        # one thread adds up in another order than two, which hundreds of rounds enlarge
        assert all(abs(some[seed] - others[seed]) < 0.05 * others[seed] for seed in some), "the results differ"
        ratios.append(in_a_row / together)
        print(f"{arguments.seeds} seeds in a row {in_a_row:.1f} s, in parallel {together:.1f} s: {ratios[-1]:.2f} x")
    load = os.getloadavg()[0]
    print(f"median {statistics.median(ratios):.2f} x; load average {load:.1f} on {os.cpu_count()} cores")
    if arguments.json:
        arguments.json.write_text(json.dumps({"sweep": {"faster": statistics.median(ratios), "load": load}}))


if __name__ == "__main__":
    main()
