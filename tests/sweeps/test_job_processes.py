"""Jobs in processes of their own: what the commands that tests/runs/test_stopping.py stops meet by chance only."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fedrun.sweeps import job_processes


def test_a_stop_that_comes_before_a_jobs_process_can_heed_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It waits for the process and ends it, whatever the order of the two."""
    begin = job_processes.run_forked_job

    def begin_late(*args: Any) -> None:
        deadline = time.monotonic() + 60
        while signal.SIGTERM not in signal.sigpending() and time.monotonic() < deadline:
            time.sleep(0.01)
        begin(*args)

    def job(number: int, slot: int) -> None:
        (tmp_path / str(number)).touch()

    monkeypatch.setattr(job_processes, "run_forked_job", begin_late)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    asking = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    asking.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            job_processes.run_jobs(job, 2, 2, nothing_lost)
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []


def test_running_jobs_have_different_slots() -> None:
    def job(number: int, slot: int) -> tuple[int, float, float]:
        began = time.monotonic()
        time.sleep((0.3, 0.1, 0.1, 0.1, 0.1)[number])
        return slot, began, time.monotonic()

    returned = job_processes.run_jobs(job, 5, 2, nothing_lost)
    assert [slot for slot, _, _ in returned[:2]] == [0, 1]
    assert {slot for slot, _, _ in returned} == {0, 1}
    for one, other in combinations(returned, 2):
        overlap = one[1] < other[2] and other[1] < one[2]
        assert not overlap or one[0] != other[0]


def nothing_lost(number: int, how: str) -> None:
    raise AssertionError(how)
