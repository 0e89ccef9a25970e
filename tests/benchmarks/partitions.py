"""How long each partition takes, and how much memory beyond the targets, for very many clients and samples.

    python tests/benchmarks/partitions.py [--clients 1000000] [--samples 100000000] [--classes 10] [--schemes NAME ...]
                                          [--json FILE]

Targets are drawn at random (int64, 8 bytes each) and inputs take no memory. Every scheme runs in a fresh process. On a
busy machine the processor's seconds say more than the clock's. The
peak is the largest resident set while splitting, less the one before; it contains the finished federation, which holds
one int64 sample number per sample. The concentration is 5 and min_samples 1, so that NIID-Bench's schemes,
which redraw until the smallest client is large enough, end at these sizes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

SCHEMES = {
    "iid": {},
    "iid_class_exact": {},
    "shards": {"shards_per_client": 2},
    "labels": {"labels_per_client": 2},
    "dirichlet": {"beta": 5.0, "min_samples": 1},
    "dirichlet_hsu": {"alpha": 0.5},
    "dirichlet_feddc": {"alpha": 0.5, "sigma": 0.3},
    "quantity_dirichlet": {"beta": 5.0, "min_samples": 1},
    "quantity_lognormal": {"sigma": 0.3},
    "clusters": {"clusters": 5, "labels_per_cluster": 2},
}

CHILD = """
import json, os, resource, sys, time
import numpy, torch
from fedrun.config import option
from fedrun.data.datasets.base import Dataset, Scaled, Spec
scheme, clients, samples, classes, keys = sys.argv[1], *map(int, sys.argv[2:5]), json.loads(sys.argv[5])
draw = numpy.random.default_rng(0)
targets = numpy.empty(samples + 1, dtype=numpy.int64)
if scheme == "iid_class_exact":  # needs equally many samples of each class, a multiple of the number of clients
    numpy.remainder(numpy.arange(samples + 1), classes, out=targets)
else:
    targets[:] = draw.integers(0, classes, samples + 1, dtype=numpy.uint8)
dataset = Dataset(
    spec=Spec((1,), classes),
    encoding=Scaled(255.0),
    inputs=torch.zeros(1, 1, dtype=torch.uint8).expand(samples + 1, 1),
    targets=torch.from_numpy(targets),
    train_size=samples,
    users=None,
    class_names=tuple(map(str, range(classes))),
    fingerprint="synthetic",
)
partition = option("partition", scheme, clients=clients, seed=0, **keys)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
start, cpu = time.perf_counter(), time.process_time()
federation = partition.split(dataset, 0)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
sizes = federation.train.sizes
found = dict(seconds=seconds, cpu=cpu, beyond=peak - before, smallest=int(sizes.min()), largest=int(sizes.max()))
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=100_000_000)
    parser.add_argument("--classes", type=int, default=10, help="at most 255")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    print(f"{arguments.clients} clients, {arguments.samples} samples, {arguments.classes} classes")
    print(f"{'partition':20} {'seconds':>8} {'CPU s':>8} {'peak GB':>8} {'smallest':>9} {'largest':>9}")
    results = {}
    for scheme in arguments.schemes:
        sizes = map(str, (arguments.clients, arguments.samples, arguments.classes))
        command = [sys.executable, "-c", CHILD, scheme, *sizes, json.dumps(SCHEMES[scheme])]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results[scheme] = found = json.loads(run.stdout)
        peak = found["beyond"] / 1e9
        times = f"{found['seconds']:8.1f} {found['cpu']:8.1f}"
        print(f"{scheme:20} {times} {peak:8.2f} {found['smallest']:9} {found['largest']:9}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"partitions": results}))


if __name__ == "__main__":
    main()
