"""Sweeps that are stopped: every running job leaves a checkpoint, no process is left, and one line says so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..helpers.forked import Fedrun
from ..helpers.timeless import results

SETTING = (
    "model=logistic",
    "partition.clients=4",
    "local.batch_size=32",
    "hardware.threads=1",
    "tracking=none",
    "checkpoint_seconds=1000",
)
SWEEP = ("-m", "seed=0,1,2", *SETTING)
ENDLESS = (*SWEEP, "rounds=100000")
PARALLEL = "hydra.launcher.jobs=2"
CONTINUES = "the same command (without overwrite=true) continues"


class Started:
    """A command in a process group of its own, as a terminal starts it; it prints to files in its folder."""

    def __init__(self, fedrun: Fedrun, folder: Path, arguments: Sequence[str], nohup: bool) -> None:
        self.folder = folder
        self._complaints = folder / "complaints"
        self._fedrun = fedrun
        self._status: int | None = None
        self.number = fedrun.start(*arguments, folder=folder, out=folder / "printed", err=self._complaints, nohup=nohup)

    def workers(self) -> list[int]:
        """The jobs' processes."""
        return [number for number in self.living() if number != self.number]

    def living(self) -> list[int]:
        """All processes of the group."""
        members = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            except OSError:  # it has just ended
                continue
            if int(group) == self.number and state != "Z":
                members.append(int(path.parent.name))
        return sorted(members)

    def runs_begun(self, count: int) -> bool:
        """Whether so many runs have gone through a round, after the one that only tests the initial model."""
        files = self.folder.glob("outputs/runs/*/*/*/*/metrics.jsonl")
        return sum(path.read_bytes().count(b"\n") > 2 for path in files) >= count

    def ended(self) -> tuple[int, str]:
        """Its exit status and what it complained of, when none of its processes is left."""
        wait_for(lambda: not self.living())
        if self._status is None:
            self._status = self._fedrun.wait(self.number)
        return self._status, self._complaints.read_text()


Start = Callable[..., AbstractContextManager[Started]]


@pytest.fixture
def started(fedrun: Fedrun) -> Start:
    """``started(folder, *arguments, nohup=False)``: ``fedrun ARGUMENTS...`` in a folder, killed when the block ends."""

    @contextmanager
    def start(folder: Path, *arguments: str, nohup: bool = False) -> Iterator[Started]:
        command = Started(fedrun, folder, arguments, nohup)
        try:
            yield command
        finally:
            for number in command.living():
                os.kill(number, signal.SIGKILL)
            command.ended()

    return start


def wait_for(reached: Callable[[], Any]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)


def checkpoints(folder: Path) -> list[str]:
    """The folders' names of the runs with a checkpoint."""
    return sorted(path.parent.name for path in folder.glob("outputs/runs/**/checkpoint.pt"))


def test_ctrl_c_while_the_workers_start(started: Start, tmp_path: Path) -> None:
    with started(tmp_path, *ENDLESS, PARALLEL) as command:
        wait_for(command.workers)
        os.killpg(command.number, signal.SIGINT)
        assert command.ended() == (130, f"fedrun: interrupted; {CONTINUES}\n")
    assert results(tmp_path) == {}


def test_ctrl_c_while_one_worker_has_no_job(started: Start, tmp_path: Path) -> None:
    short_and_long = 'hydra.sweeper.grids=[{rounds:"1"},{rounds:"100000"}]'
    with started(tmp_path, "-m", short_and_long, *SETTING, PARALLEL) as command:
        wait_for(lambda: list(tmp_path.glob("outputs/sweeps/*/0/outcome.json")) and command.runs_begun(1))
        os.killpg(command.number, signal.SIGINT)
        assert command.ended() == (130, f"fedrun: interrupted; {CONTINUES}\n")
    assert len(checkpoints(tmp_path)) == 2


def test_a_terminal_that_is_closed(started: Start, tmp_path: Path) -> None:
    with started(tmp_path, *ENDLESS, PARALLEL) as command:
        wait_for(lambda: command.runs_begun(2))
        os.killpg(command.number, signal.SIGHUP)
        assert command.ended() == (143, f"fedrun: terminated; {CONTINUES}\n")
    assert checkpoints(tmp_path) == ["seed=0", "seed=1"]


def test_nohup(started: Start, tmp_path: Path) -> None:
    """What a process was started to ignore it ignores, with its jobs."""
    with started(tmp_path, *SWEEP, "seed=0,1", "rounds=20", PARALLEL, nohup=True) as command:
        wait_for(lambda: command.runs_begun(2))
        os.killpg(command.number, signal.SIGHUP)
        assert command.ended() == (0, "")
    assert [len(rows) for rows in results(tmp_path).values()] == [21] * 2


def test_a_worker_that_is_asked_to_stop(started: Start, tmp_path: Path) -> None:
    """It has the sweep's process ask the others."""
    with started(tmp_path, *ENDLESS, PARALLEL) as command:
        wait_for(lambda: command.runs_begun(2))
        os.kill(command.workers()[-1], signal.SIGTERM)
        assert command.ended() == (143, f"fedrun: terminated; {CONTINUES}\n")
    assert checkpoints(tmp_path) == ["seed=0", "seed=1"]


def test_the_same_command_continues_a_parallel_sweep_whose_parent_was_killed(
    fedrun: Fedrun, started: Start, tmp_path: Path
) -> None:
    """Nobody is left to say anything, but the workers stop and what they have done is not done again."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    sweep = (*SWEEP, "seed=0,1", "rounds=30")  # so many that they are not over before the parent is killed
    assert fedrun(*sweep, folder=one).status == 0
    with started(two, *sweep, PARALLEL) as command:
        wait_for(lambda: command.runs_begun(1))
        os.kill(command.number, signal.SIGKILL)
        assert command.ended()[0] == -signal.SIGKILL

    def begun() -> dict[str, int]:
        return {Path(path).parent.name: len(rows) for path, rows in results(two).items() if rows}

    wait_for(lambda: begun().keys() <= set(checkpoints(two)))  # a worker finishes its round after its parent's death
    assert min(begun().values()) < 31
    with started(two, *sweep, PARALLEL) as command:
        assert command.ended() == (0, "")
    assert results(two) == results(one)


def test_a_worker_that_is_killed(started: Start, tmp_path: Path) -> None:
    """Its job has failed, the others go on; the same command goes on from its newest checkpoint."""
    sweep = (*SWEEP, "rounds=30", "checkpoint_seconds=0", PARALLEL)
    with started(tmp_path, *sweep) as command:
        wait_for(lambda: command.runs_begun(2))
        os.kill(command.workers()[0], signal.SIGKILL)
        status, complaint = command.ended()
    why = "its process was killed (SIGKILL), usually because memory ran out; run fewer jobs at once"
    told = " ".join(["seed=0", *SETTING[:-1], "checkpoint_seconds=0", "rounds=30"])
    assert status == 1
    assert complaint.splitlines() == [
        f"== 0: failed: {why}",
        f"failed: {told}: {why}",
        "fedrun: 1 of 3 jobs failed",
    ]
    complete = {path.parent.name for path in tmp_path.glob("outputs/runs/**/summary.json")}
    assert (complete, "seed=0" in checkpoints(tmp_path)) == ({"seed=1", "seed=2"}, True)
    with started(tmp_path, *sweep) as command:
        assert command.ended() == (0, "")
    assert [len(rows) for rows in results(tmp_path).values()] == [31] * 3


def test_a_second_ctrl_c_waits_for_nothing(started: Start, tmp_path: Path) -> None:
    """The jobs are stopped meanwhile, as a disk that does not answer would stop them: they never write anything."""
    with started(tmp_path, *ENDLESS, PARALLEL) as command:
        wait_for(lambda: command.runs_begun(2))
        for worker in command.workers():
            os.kill(worker, signal.SIGSTOP)
        os.killpg(command.number, signal.SIGINT)
        time.sleep(0.5)
        assert command.number in command.living()
        os.killpg(command.number, signal.SIGINT)
        assert command.ended() == (130, f"fedrun: interrupted; {CONTINUES}\n")
    assert checkpoints(tmp_path) == []
