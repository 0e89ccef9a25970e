"""Checkpoints: what is read back, and what ends the writing: a full disk, Ctrl-C, a termination."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedrun.execution.vector_store import VectorStore
from fedrun.runs import checkpoint
from fedrun.runs.checkpoint import Checkpoint, Identity, load, processes_of, save
from fedrun.runs.metrics_file import Written
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.server import ServerState
from fedrun.system.checksums import write_sealed
from fedrun.system.signals import TerminatedError

from ..helpers.small_networks import mlp


@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.parametrize("ended", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), TerminatedError()], ids=repr)
def test_the_end_of_a_write_keeps_its_kind(
    make_experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: BaseException, write: int
) -> None:
    class Interrupted(io.BytesIO):
        writes = 0

        def write(self, content) -> int:
            self.writes += 1
            if self.writes == write:
                raise ended
            return super().write(content)

    @contextmanager
    def opened(_: Path) -> Iterator[io.BytesIO]:
        yield Interrupted()

    monkeypatch.setattr(checkpoint, "write_sealed", opened)
    state = Simulation(make_experiment(network=mlp)).initial()
    content = Checkpoint(state, Written(0, 0), "", 0.0, processes=1)
    with pytest.raises(type(ended)):
        save(tmp_path / "checkpoint.pt", content, Identity("", 0, "", "", ""), VectorStore(1, 1 << 20))


def test_what_is_read_back(make_experiment, tmp_path: Path) -> None:
    """Also a model's tensors, each by its owner, and from a file of an earlier version, in which all were slots."""
    state = Simulation(make_experiment(network=mlp)).initial()
    server = ServerState(state.server.model, {"momentum": torch.ones(1)}, {"clip": torch.ones(1)})
    state = replace(state, models=(server,), last_mean=torch.full((3,), 2.0))
    written = Checkpoint(state, Written(7, 1234), "abc", 2.5, processes=3)
    path, identity, store = tmp_path / "checkpoint.pt", Identity("hash", 1, "data"), VectorStore(1, 1 << 20)
    save(path, written, identity, store)
    content = torch.load(path, weights_only=True)
    content["models"][0]["slots"]["mean of the last models"] = content.pop("last_mean")
    with write_sealed(earlier := tmp_path / "earlier.pt") as file:
        torch.save(content, file)
    for file in (path, earlier):
        found = load(file, identity, state, store)
        assert (found.metrics, found.tracking_id, found.seconds, found.processes) == (Written(7, 1234), "abc", 2.5, 3)
        assert (found.state.server.slots, found.state.server.transforms) == (server.slots, server.transforms)
        assert found.state.last_mean.tolist() == [2.0, 2.0, 2.0]


def test_a_damaged_number_of_processes_is_not_used(tmp_path: Path) -> None:
    """Flipping the highest bit of the byte of 1 in the pickled dictionary makes it 129."""
    path = tmp_path / "checkpoint.pt"
    with write_sealed(path) as file:
        torch.save({"processes": 1}, file)
    assert processes_of(path) == 1
    content = bytearray(path.read_bytes())
    content[content.index(b"K\x01", content.index(b"processes")) + 1] ^= 128
    path.write_bytes(content)
    assert processes_of(path) is None
