"""Processes that fedrun starts itself: one command, one voice, the results of one process."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from ..helpers.forked import Fedrun
from ..helpers.timeless import results

SMALL = (
    "rounds=3",
    "model=logistic",
    "partition.clients=7",
    "local.batch_size=32",
    "hardware.threads=1",
    "tracking=none",
    "display=none",
    "strategy=scaffold",
)
TWO = "hardware.processes=2"


def rows(folder: Path) -> list[dict[str, Any]]:
    (metrics,) = results(folder).values()
    return metrics


def checkpoint(folder: Path) -> Any:
    (path,) = folder.glob("outputs/*/*/*/*/seed=0/checkpoint.pt")
    return torch.load(path)


def test_one_command_computes_in_two_processes_what_one_does(fedrun: Fedrun, tmp_path: Path) -> None:
    divided, alone = tmp_path / "divided", tmp_path / "alone"
    divided.mkdir(), alone.mkdir()
    ended = fedrun(*SMALL, TWO, folder=divided)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("machine    2 processes with 1 thread each, ") == ended.out.count("rounds to 90 %") == 1
    assert fedrun(*SMALL, folder=alone).status == 0
    assert len(rows(divided)) == 4
    for row, expected in zip(rows(divided), rows(alone), strict=True):
        assert row == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert (checkpoint(divided)["processes"], checkpoint(alone)["processes"]) == (2, 1)
    (summary,) = divided.glob("outputs/*/*/*/*/seed=0/summary.json")
    assert json.loads(summary.read_text())["machine"] == {
        "processes": 2,
        "threads": 1,
        "executor": "in_process",
    }
    assert "finished earlier" in fedrun(*SMALL, TWO, folder=divided).out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stop_of_the_command_stops_all_after_the_round(
    fedrun: Fedrun, tmp_path: Path, number: signal.Signals
) -> None:
    """The leader receives the signal in its second round; the other rank hears of it."""
    moment = ("fedrun.execution.ranks:Ranks", "after_round", 2, 0, number)
    ended = fedrun(*SMALL, TWO, folder=tmp_path, kill_at=moment)  # type: ignore[arg-type]
    assert ended.status == 143  # as of a command of one process
    assert ended.err == (
        f"fedrun: stopped by {number.name} after round 2; the same command (without overwrite=true) continues\n"
    )
    assert len(rows(tmp_path)) == 3
    assert fedrun(*SMALL, "hardware.processes=3", folder=tmp_path).status == 0
    assert [row["round"] for row in rows(tmp_path)] == [0, 1, 2, 3]


def test_a_process_that_dies_at_its_start_ends_the_command(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun(*SMALL, TWO, folder=tmp_path, kill_at=("fedrun.execution.forked_ranks", "_rank", 1, 0))
    assert ended.status == 1
    assert ended.err.startswith("fedrun: another rank was lost") and len(ended.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        (("clients_per_round=8",), "clients_per_round=8: the federation has 7 clients; allowed: 1 to 7"),
        (("hardware.device=cuda",), "hardware.device=cuda: PyTorch sees 0 CUDA devices"),
        (("hardware.processes=0",), "hardware.processes=0: allowed: "),
    ],
)
def test_what_cannot_be_used_is_said_once(fedrun: Fedrun, tmp_path: Path, chosen: tuple[str, ...], line: str) -> None:
    ended = fedrun(*SMALL, TWO, *chosen, folder=tmp_path)
    assert ended.status == 2
    assert ended.err.startswith(f"fedrun: {line}") and len(ended.err.splitlines()) == 1


def test_jobs_of_a_sweep_have_one_process(fedrun: Fedrun, tmp_path: Path) -> None:
    ended = fedrun("-m", *SMALL, TWO, "seed=0,1", folder=tmp_path)
    assert ended.status == 2
    assert "hardware.processes=2: a job of a sweep has one process; allowed: auto, 1" in ended.err
