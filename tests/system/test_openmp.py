"""The active waiting of OpenMP's threads is limited before PyTorch is loaded; the user's setting wins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrun.system import openmp
from fedrun.system.openmp import limit_spinning, running_elsewhere

CODE = """
import sys, os, fedrun
assert "torch" not in sys.modules
print(os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, ("10000", "0")), ({"GOMP_SPINCOUNT": "7"}, ("7",)), ({"OMP_WAIT_POLICY": "ACTIVE"}, ("None",))],
    ids=["nothing set", "spins set", "policy set"],
)
def test_the_spinning_is_limited(given: dict[str, str], expected: tuple[str, ...]) -> None:
    rest = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    ended = subprocess.run(
        [sys.executable, "-c", CODE], env={**rest, **given}, capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() in expected
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("elsewhere", "own", "machine", "spins"),
    [(0, 2, 2, "10000"), (1, 2, 2, "0"), (2, 2, 2, "0"), (30, 8, 64, "10000"), (57, 8, 64, "0"), (0, 1, None, "10000")],
)
def test_threads_sleep_at_once_where_others_need_the_cores(
    monkeypatch: pytest.MonkeyPatch, elsewhere: int, own: int, machine: int | None, spins: str
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that it is restored
    del os.environ["GOMP_SPINCOUNT"]
    monkeypatch.setattr(openmp, "running_elsewhere", lambda: elsewhere)
    monkeypatch.setattr(openmp, "cores", lambda: own)
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == spins


@pytest.mark.parametrize(
    ("text", "running"), [("1.00 0.50 0.20 3/182 4711\n", 2), ("0.0 0.0 0.0 0/7 1\n", 0), ("damaged", 0)]
)
def test_running_threads(tmp_path: Path, text: str, running: int) -> None:
    load = tmp_path / "loadavg"
    load.write_text(text)
    assert running_elsewhere(load) == running
    assert running_elsewhere(tmp_path / "none") == 0
