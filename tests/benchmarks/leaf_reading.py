"""How long LEAF's FEMNIST takes to read the first time and from the cache, and how much memory the first reading needs.

    python tests/benchmarks/leaf_reading.py [--users 3550] [--samples 227] [--folder DIR] [--json FILE]

Writes JSON files of FEMNIST's shape and format (about 4.6 GB for the defaults) to a temporary folder in DIR, reads
them in
fresh processes, prints a table and deletes them. Times are beyond importing torch; memory is the peak resident set
beyond the one after importing torch. Mapped pages that were read count as resident, as far as the process touched them.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

USERS_PER_FILE = 100
"""LEAF's FEMNIST has 36 files for 3550 users."""
INK = 0.15
"""Share of pixels that are not plain paper; those are written with about 18 digits, paper as ``1.0``."""

CHILD = """
import json, resource, sys, time
import torch, ijson, numpy
from fedrun.data.datasets.femnist import Femnist
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # kilobytes on Linux
before, start = peak(), time.perf_counter()
dataset = Femnist(data_dir=sys.argv[1], cache_dir=None, min_samples=1, min_samples_after_split=1).load()
seconds, after = time.perf_counter() - start, peak()
batch = dataset.encoding(dataset.inputs[torch.randint(len(dataset.inputs), (64,))])
print(json.dumps(dict(seconds=seconds, peak=after, beyond_torch=after - before, samples=len(dataset.inputs))))
"""


def write_split(folder: Path, users: int, samples: int, images: list[str]) -> None:
    """Write JSON files of one split; every image is one of the ready-made texts ``images``."""
    folder.mkdir(parents=True)
    draw = random.Random(folder.name)
    for first in range(0, users, USERS_PER_FILE):
        names = [f"f{user:04d}_{folder.name}" for user in range(first, min(first + USERS_PER_FILE, users))]
        with open(folder / f"all_data_{first // USERS_PER_FILE:02d}.json", "w") as file:
            file.write(f'{{"users": {json.dumps(names)}, "num_samples": {[samples] * len(names)}, "user_data": {{')
            for user, name in enumerate(names):
                x = ", ".join(draw.choices(images, k=samples))
                y = [draw.randrange(62) for _ in range(samples)]
                file.write(f'{", " * (user > 0)}"{name}": {{"x": [{x}], "y": {y}}}')
            file.write("}}")


def ready_made_images(count: int) -> list[str]:
    draw = random.Random(0)
    grey = [str(level / 255) for level in range(256)]
    return [
        f"[{', '.join(draw.choice(grey) if draw.random() < INK else '1.0' for _ in range(784))}]" for _ in range(count)
    ]


def measure(folder: Path) -> dict[str, float]:
    """Load the dataset once in a fresh process."""
    run = subprocess.run([sys.executable, "-c", CHILD, str(folder)], check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(run.stdout)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=3550)
    parser.add_argument("--samples", type=int, default=227)
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary files go")
    parser.add_argument("--json", type=Path, default=None, help="write the measurements to this file as well")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        source, test_users = Path(place) / "femnist", arguments.users // 10
        images = ready_made_images(500)
        start = perf_counter()
        write_split(source / "train", arguments.users - test_users, arguments.samples, images)
        write_split(source / "test", max(test_users, 1), arguments.samples, images)
        written = perf_counter() - start
        json_bytes = sum(path.stat().st_size for path in source.glob("*/*.json"))
        first, again = measure(Path(place)), measure(Path(place))

    data_bytes = first["samples"] * 784
    results = {
        "users": arguments.users,
        "samples": first["samples"],
        "json_mb": json_bytes / 1e6,
        "uint8_mb": data_bytes / 1e6,
        "generating_s": written,
        "first_read_s": first["seconds"],
        "first_read_peak_mb": first["peak"] / 1e6,
        "first_read_beyond_torch_mb": first["beyond_torch"] / 1e6,
        "first_read_beyond_torch_per_uint8": first["beyond_torch"] / data_bytes,
        "from_cache_s": again["seconds"],
        "from_cache_beyond_torch_mb": again["beyond_torch"] / 1e6,
    }
    for name, value in results.items():
        print(f"{name:36} {value:12.3f}" if isinstance(value, float) else f"{name:36} {value:12}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
