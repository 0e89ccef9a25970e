"""From the command line to the end of the first round on scikit-learn's digits, beyond `import torch`.

In turn, in fresh processes: an interpreter that imports torch and ends, and `fedrun`, until the first round stands in
the run's metrics. Once before, so that files lie in the system's cache and modules are compiled. Both in seconds that
pass, which need the machine to itself, and in the processor's.

    python tests/benchmarks/cold_start.py [--pairs 5] [--threads 1] [--json FILE]
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


def importing() -> Taken:
    """An interpreter that imports torch."""
    began = time.perf_counter()
    code = "import torch, time; print(time.process_time())"
    ended = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return Taken(time.perf_counter() - began, float(ended.stdout))


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
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    importing(), first_round(arguments.threads)
    times = [(importing(), first_round(arguments.threads)) for _ in range(arguments.pairs)]
    beyond = {
        clock: statistics.median(getattr(start, clock) - getattr(torch, clock) for torch, start in times)
        for clock in ("wall", "cpu")
    }
    torch = {clock: statistics.median(getattr(each, clock) for each, _ in times) for clock in ("wall", "cpu")}
    print(f"import torch: {torch['wall']:.2f} s, {torch['cpu']:.2f} s of the processor (medians of {len(times)})")
    print(f"to the first round beyond it: {beyond['wall']:.2f} s, {beyond['cpu']:.2f} s of the processor")
    if arguments.json:
        arguments.json.write_text(json.dumps({"cold_start": {"import_torch": torch, "beyond": beyond}}))


if __name__ == "__main__":
    main()
