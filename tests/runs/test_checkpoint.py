"""Checkpoints: what is read back, and what ends the writing: a full disk, Ctrl-C, a termination."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedrun.execution.vector_store import VectorStore
from fedrun.runs import checkpoint
from fedrun.runs.checkpoint import Checkpoint, Identity, load, save
from fedrun.runs.metrics_file import Written
from fedrun.simulation.simulation import Simulation
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
    state = Simulation(make_experiment(network=mlp)).initial()
    written = Checkpoint(state, Written(7, 1234), "abc", 2.5, processes=3)
    path, identity, store = tmp_path / "checkpoint.pt", Identity("hash", 1, "data"), VectorStore(1, 1 << 20)
    save(path, written, identity, store)
    found = load(path, identity, state, store)
    assert (found.metrics, found.tracking_id, found.seconds, found.processes) == (Written(7, 1234), "abc", 2.5, 3)
