"""Runs every benchmark, one after the other, and writes what they found to one file of JSON.

    python tests/benchmarks/everything.py [--json bench.json] [--only NAME ...]

A benchmark that fails is named at the end, and the exit status is 1; the others are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

BENCHMARKS = {
    "floor": ["floor.py"],
    "floor_vectorized": ["floor.py", "--workloads", "tiny", "2nn", "--executor", "vectorized"],
    "floor_bfloat16": ["floor.py", "--workloads", "femnist", "cifar", "lstm", "--precision", "bfloat16"],
    "side_by_side": ["side_by_side.py"],
    "client_strategies": ["client_strategies.py"],
    "evaluation_cost": ["evaluation_cost.py"],
    "appeal_cost": ["appeal_cost.py"],
    "round_memory": ["round_memory.py"],
    "large_activations": ["large_activations.py"],
    "million_clients": ["million_clients.py"],
    "turbosvm_server": ["turbosvm_server.py"],
    "turbosvm_growth": ["turbosvm_growth.py"],
    "partitions": ["partitions.py"],
    "leaf_reading": ["leaf_reading.py"],
    "cold_start": ["cold_start.py"],
    "shared_machine": ["shared_machine.py"],
    "sweep": ["sweep.py"],
    "distributed_round": ["distributed_round.py"],
    "distributed_round_10": ["distributed_round.py", "--batch-size", "10", "--clients", "8"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    arguments = parser.parse_args()

    # naive implementations that some compare with stand beside the tests
    paths = [HERE.parents[1], HERE.parent / "helpers", *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    found: dict[str, object] = {}
    failed = []
    for name in arguments.only:
        script, *options = BENCHMARKS[name]
        print(f"== {name}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            command = [sys.executable, str(HERE / script), *options, "--json", str(result)]
            if subprocess.run(command, check=False, env=environment).returncode:
                failed.append(name)
                continue
            found |= json.loads(result.read_text())
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    raise SystemExit(main())
