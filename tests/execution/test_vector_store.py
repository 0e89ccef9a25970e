"""Vectors in main memory and in a file: what is held stays, what is released is used again, what is full is told."""

from __future__ import annotations

import gc
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

from fedrun.config.composed import compose
from fedrun.execution.vector_store import CHUNK_BYTES, Slot, VectorStore
from fedrun.experiment.experiment import Experiment, build_experiment
from fedrun.runs.run import run
from fedrun.system.checksums import DamagedFileError

from ..helpers.interrupted_runs import Interrupts, rows


def numbers(value: float, length: int = 3) -> torch.Tensor:
    return torch.full((length,), value)


def numbered(store: VectorStore, vector: torch.Tensor) -> int | None:
    slot = store.slot(vector)
    return None if slot is None else slot.number


def test_up_to_the_limit_in_memory_then_in_the_file(tmp_path: Path) -> None:
    store = VectorStore(length=3, limit=24, path=tmp_path / "memory")  # room for two vectors of three numbers
    kept = [store.keep(numbers(value)) for value in (1.0, 2.0, 3.0, 4.0)]
    assert [vector.tolist() for vector in kept] == [[1] * 3, [2] * 3, [3] * 3, [4] * 3]
    assert [numbered(store, vector) for vector in kept] == [None, None, 0, 1]
    store.flush()
    assert torch.from_file(str(tmp_path / "memory"), size=32).view(2, 16)[:, :3].tolist() == [[3] * 3, [4] * 3]


def test_longer_vectors_than_a_slot_stay_in_memory(tmp_path: Path) -> None:
    store = VectorStore(3, 0, tmp_path / "memory")  # slots have 16 numbers, because of the alignment
    kept = [store.keep(numbers(1.0, 16)), store.keep(numbers(2.0, 17)), store.keep(numbers(3.0, 2))]
    assert [numbered(store, vector) for vector in kept] == [0, None, 1]
    assert [vector.tolist() for vector in kept] == [[1] * 16, [2] * 17, [3] * 2]


def test_what_is_kept_is_a_copy(tmp_path: Path) -> None:
    for limit in (0, 1000):
        store, vector = VectorStore(3, limit, tmp_path / "memory"), numbers(1.0)
        kept = store.keep(vector)
        vector += 1
        assert kept.tolist() == [1, 1, 1]


def test_a_slot_is_used_again_only_when_nobody_holds_it(tmp_path: Path) -> None:
    store = VectorStore(3, 0, tmp_path / "memory")
    first, second = store.keep(numbers(1.0)), store.keep(numbers(2.0))
    assert numbered(store, store.keep(numbers(3.0))) == 2  # released at once
    del first
    gc.collect()
    assert numbered(store, store.keep(numbers(4.0))) == 0
    assert second.tolist() == [2, 2, 2]


def test_released_main_memory_is_used_again(tmp_path: Path) -> None:
    store = VectorStore(3, 12, tmp_path / "memory")
    first = store.keep(numbers(1.0))
    assert numbered(store, store.keep(numbers(2.0))) == 0
    del first
    gc.collect()
    assert numbered(store, store.keep(numbers(3.0))) is None


def test_the_file_grows_and_shorter_vectors_fit(tmp_path: Path) -> None:
    length = CHUNK_BYTES // 8  # two slots in a chunk
    store = VectorStore(length, 0, tmp_path / "memory")
    kept = [store.keep(numbers(float(value), 5)) for value in range(5)]
    assert [numbered(store, vector) for vector in kept] == [0, 1, 2, 3, 4]
    assert [vector.tolist() for vector in kept] == [[value] * 5 for value in range(5)]
    with pytest.raises(DamagedFileError, match="slot 6 is missing"):
        store.read(Slot(6, 1, 0))


def test_reopened(tmp_path: Path) -> None:
    store = VectorStore(3, 0, tmp_path / "memory")
    kept = [store.keep(numbers(value)) for value in (1.0, 2.0, 3.0)]
    store.flush()
    again = VectorStore(3, 0, tmp_path / "memory")
    slot = store.slot(kept[1])
    assert slot == Slot(1, 3, zlib.crc32(struct.pack("<3f", 2, 2, 2)))
    again.reopen([slot])
    held = again.read(slot)
    new = [again.keep(numbers(value)) for value in (7.0, 8.0)]
    assert held.tolist() == [2, 2, 2]
    assert [numbered(again, vector) for vector in new] == [0, 2]
    assert len(kept) == 3


@pytest.mark.parametrize("bit", range(0, 96, 5))  # in each of the 12 bytes, and at each place of a byte
def test_a_flipped_bit_of_a_slot_is_found(tmp_path: Path, bit: int) -> None:
    store = VectorStore(3, 0, tmp_path / "memory")
    vector = store.keep(torch.tensor([0.5, 0.0, -3.0]))
    slot = store.slot(vector)
    assert slot is not None
    store.flush()
    content = bytearray((tmp_path / "memory").read_bytes()[:64])
    content[bit // 8] ^= 1 << bit % 8
    (tmp_path / "damaged").write_bytes(content)
    again = VectorStore(3, 0, tmp_path / "damaged")
    again.reopen([slot])
    with pytest.raises(DamagedFileError, match="the checksum of slot 0 differs"):
        again.read(slot)


def test_without_a_path_it_needs_no_name(tmp_path: Path) -> None:
    assert VectorStore(3, 0).keep(numbers(5.0)).tolist() == [5, 5, 5]


def test_a_full_disk_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    code = f"""
import resource, torch
from fedrun.execution.vector_store import VectorStore
from fedrun.system.errors import RunError
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    VectorStore(3, 0, __import__("pathlib").Path({str(tmp_path / "memory")!r})).keep(torch.ones(3))
except RunError as error:
    print("refused:", error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(f"refused: {tmp_path / 'memory'}: cannot be written (")


SETTING = ("partition.clients=8", "clients_per_round=3", "model.hidden=[8]", "tracking=none", "rounds=5")


@pytest.mark.parametrize("strategy", ["scaffold", "moon", "fedumf"])
def test_a_run_whose_client_states_are_on_disk(strategy: str, tmp_path: Path, plain: None) -> None:
    """It ends like one that has all in main memory, interrupted or not, and its checkpoint holds no client's vector."""

    def experiment(name: str, gigabytes: float) -> Experiment:
        memory = f"hardware.client_memory_gb={gigabytes}"
        return build_experiment(compose([f"strategy={strategy}", *SETTING, memory, f"output_dir={tmp_path / name}"]))

    whole, parted = experiment("whole", 1.0), experiment("parted", 0.0)
    run(whole)
    for round in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            run(parted, [Interrupts(round)])
    held = torch.load(parted.folder / "checkpoint.pt", weights_only=True)["memory"]
    assert len(held["clients"]) and held["slots"]
    assert not held["stacked"] and not held["single"]
    run(parted)
    assert rows(parted.folder) == rows(whole.folder)
    assert not (whole.folder / "clients.memory").exists()


def test_a_lost_file_of_client_states_is_reported(tmp_path: Path, plain: None) -> None:
    from fedrun.system.errors import InputError

    chosen = ["strategy=scaffold", *SETTING, "hardware.client_memory_gb=0", f"output_dir={tmp_path}"]
    experiment = build_experiment(compose(chosen))
    with pytest.raises(KeyboardInterrupt):
        run(experiment, [Interrupts(2)])
    (experiment.folder / "clients.memory").write_bytes(b"")
    with pytest.raises(InputError, match=r"clients\.memory: is damaged \(slot \d is missing\); "):
        run(experiment)
    assert json.loads((experiment.folder / "metrics.jsonl").read_text().splitlines()[0])["round"] == 0
