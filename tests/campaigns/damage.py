"""Damages files that fedrun reads back, and counts the damages that it does not notice.

``python tests/campaigns/damage.py [DAMAGES]`` flips bits, zeroes blocks and cuts ends: in the checkpoint, the client
states and the metrics of an interrupted run, in the files of a finished run, and in a dataset's cache. A damage is
noticed if resuming the run, showing and reporting the finished run, or loading the dataset ends with one line that
names the file, and nothing is overwritten. Prints the damages tried and unnoticed per file; exit status 1 if any was
unnoticed.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from fedrun.config.composed import compose
from fedrun.data.datasets import cache
from fedrun.data.datasets.femnist import Femnist
from fedrun.execution.vector_store import ALIGNMENT
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.experiment.observer import Observer
from fedrun.report.runs import find
from fedrun.runs.run import run
from fedrun.system.errors import InputError

SETTING = (
    "strategy=scaffold",
    "model=logistic",
    "partition.clients=5",
    "rounds=3",
    "hardware.threads=1",
    "hardware.client_memory_gb=0",
    "tracking=none",
    "display=none",
)

Damage = Callable[[bytes, random.Random], bytes]


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def zero_block(content: bytes, draw: random.Random) -> bytes:
    """Zeroes of 1 to 512 bytes, which begin where the content is not zero."""
    at = draw.choice([at for at, byte in enumerate(content) if byte])
    length = min(draw.choice((1, 8, 64, 512)), len(content) - at)
    return content[:at] + bytes(length) + content[at + length :]


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


DAMAGES: dict[str, Damage] = {"bit": flip_bit, "zeroes": zero_block, "cut": cut}


@dataclass(frozen=True)
class Target:
    """A file to damage.

    Attributes:
        name: for the table.
        path: of the file.
        used: first byte of the part that fedrun reads, and its length.
        read: reads the file as fedrun does; raises InputError if it notices a damage.
        bystanders: files that must stay as they are.
    """

    name: str
    path: Path
    used: tuple[int, int]
    read: Callable[[], object]
    bystanders: tuple[Path, ...]

    def notices(self, damage: Damage, draw: random.Random) -> bool:
        """Whether reading the file notices a damage of its used part; the file is restored."""
        whole, (start, length) = self.path.read_bytes(), self.used
        part = damage(whole[start : start + length], draw)
        damaged = whole[:start] + part + (whole[start + length :] if len(part) == length else b"")
        before = {path: path.read_bytes() for path in self.bystanders if path != self.path}
        self.path.write_bytes(damaged)
        try:
            self.read()
            return False
        except InputError as error:
            unchanged = all(path.read_bytes() == content for path, content in {**before, self.path: damaged}.items())
            return unchanged and str(error).startswith(str(self.path)) and "\n" not in str(error)
        finally:
            for path, content in {**before, self.path: whole}.items():
                path.write_bytes(content)


class Interrupting(Observer):
    """Interrupts a run in its third round."""

    def on_client(self, round: int, done: int, cohort: int) -> None:
        if round == 3:
            raise KeyboardInterrupt


def experiment(output_dir: Path) -> Experiment:
    return build_experiment(compose([*SETTING, f"output_dir={output_dir}"]))


def interrupted_run(place: Path) -> list[Target]:
    """The files of an interrupted run, which resuming reads."""
    setting = experiment(place)
    try:
        run(setting, [Interrupting()])
    except KeyboardInterrupt:
        folder = setting.folder
    stored = torch.load(folder / "checkpoint.pt", weights_only=True)["memory"]["slots"]
    _, number, length, _ = min(row for rows in stored.values() for row in rows.tolist())
    files = folder / "checkpoint.pt", folder / "metrics.jsonl"
    targets = [
        Target(f"run {path.name}", path, (0, path.stat().st_size), lambda: run(setting), files) for path in files
    ]
    states = folder / "clients.memory"  # its file has free slots, too
    start = number * -(-4 * length // ALIGNMENT) * ALIGNMENT
    return [*targets, Target(f"run {states.name}", states, (start, 4 * length), lambda: run(setting), files)]


def finished_run(place: Path) -> list[Target]:
    """The files of a finished run, which showing its result and a report check."""
    setting = experiment(place)
    run(setting)
    folder = setting.folder

    def read() -> None:
        if not find([str(folder)]).damaged:
            return
        run(setting)

    names = ("summary.json", "checksums.txt", "metrics.jsonl", "clients.parquet", "model.safetensors", "curves.png")
    files = tuple(folder / name for name in (*names, ".hydra/config.yaml") if (folder / name).stat().st_size)
    return [Target(f"result {path.name}", path, (0, path.stat().st_size), read, files) for path in files]


def dataset_cache(place: Path) -> list[Target]:
    """The files of a dataset's cache."""
    source = place / "femnist" / "train" / "all.json"
    source.parent.mkdir(parents=True)
    draw = random.Random(1)
    users = [f"user{number}" for number in range(8)]
    images = {user: [[draw.random() for _ in range(784)] for _ in range(5)] for user in users}
    data = {user: {"x": images[user], "y": [draw.randrange(62) for _ in range(5)]} for user in users}
    source.write_text(json.dumps({"users": users, "num_samples": [5] * 8, "user_data": data}))
    dataset = Femnist(data_dir=str(place), cache_dir=None, min_samples=1, min_samples_after_split=1)

    def load() -> None:
        cache.damaged_cache_files.cache_clear()  # as in a new process
        dataset.load()

    load()
    (folder,) = (place / "femnist" / cache.CACHE).iterdir()
    files = tuple(sorted(folder.iterdir()))
    return [Target(f"cache {path.name}", path, (0, path.stat().st_size), load, files) for path in files]


def campaign(place: Path, count: int, seed: int) -> Iterator[tuple[str, str, bool]]:
    """``count`` damages, evenly over files and kinds: name of the file, kind of the damage, whether it was noticed."""
    targets = [*interrupted_run(place / "interrupted"), *finished_run(place / "finished"), *dataset_cache(place)]
    draw = random.Random(seed)
    pairs = [(target, kind) for kind in DAMAGES for target in targets]
    for number in range(count):
        target, kind = pairs[number % len(pairs)]
        yield target.name, kind, target.notices(DAMAGES[kind], draw)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    tried, unnoticed = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        for name, kind, noticed in campaign(Path(place), count, seed=0):
            tried[name] += 1
            unnoticed[name] += not noticed
            if not noticed:
                print(f"unnoticed: {kind} in {name}")
    for name, number in sorted(tried.items()):
        print(f"{name:<28} {number:>4} tried {unnoticed[name]:>4} unnoticed")
    print(f"{'all':<28} {tried.total():>4} tried {unnoticed.total():>4} unnoticed")
    sys.exit(unnoticed.total() > 0)


if __name__ == "__main__":
    main()
