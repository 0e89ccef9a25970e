"""Client states in a checkpoint: short and long vectors, in main memory and in the file, of clients in any order."""

from __future__ import annotations

from pathlib import Path

import torch

from fedrun.execution.vector_store import VectorStore
from fedrun.runs.saved_states import SHORT, packed, unpacked


def numbers(length: int, first: float) -> torch.Tensor:
    return first + torch.arange(length, dtype=torch.float32)


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    path, saved = tmp_path / "states", tmp_path / "saved"
    store = VectorStore(SHORT + 1, 4 * (3 + 2 + SHORT + 1), path)  # room for the first three vectors
    given = {
        7: {"control": numbers(3, 1.0), "last": numbers(2, 5.0)},
        2: {"last": numbers(SHORT + 1, 0.5)},
        9: {"control": numbers(3, -4.0), "last": numbers(4, 8.0)},
        4: {"control": numbers(3, 0.0)},
    }
    held = {client: {name: store.keep(vector) for name, vector in vectors.items()} for client, vectors in given.items()}
    content = packed(held, store)
    assert len(content["stacked"]) == 2 and len(content["single"]) == 1
    assert {name: len(rows) for name, rows in content["slots"].items()} == {"control": 2, "last": 1}
    store.flush()
    torch.save(content, saved)
    again = unpacked(torch.load(saved, weights_only=True), VectorStore(SHORT + 1, 4 * (3 + 2 + SHORT + 1), path))
    assert list(again) == [7, 2, 9, 4]
    for client, vectors in given.items():
        assert again[client].keys() == vectors.keys()
        assert all(torch.equal(again[client][name], vector) for name, vector in vectors.items())


def test_without_clients() -> None:
    store = VectorStore(3, 100)
    assert unpacked(packed({}, store), store) == {}


def test_vectors_of_one_name_and_length_are_one_tensor() -> None:
    store = VectorStore(3, float("inf"))
    content = packed({client: {"control": numbers(3, client)} for client in range(50)}, store)
    ((name, positions, vectors),) = content["stacked"]
    assert (name, positions.tolist(), vectors.shape) == ("control", list(range(50)), (50, 3))
