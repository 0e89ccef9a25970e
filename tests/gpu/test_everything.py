"""The GPU script at toy size on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("everything.py")


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, str(SCRIPT)], cwd=tmp_path, check=False, capture_output=True, text=True, env=environment
    )
    assert (ended.returncode, ended.stderr) == (2, "")
    assert ended.stdout == "PyTorch sees no CUDA device; allowed without one: --device cpu --toy\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "sections",
    [
        ["agreement", "determinism", "femnist", "convolutions"],
        pytest.param(["recurrent", "tiny", "evaluation", "turbosvm", "lstm"], marks=pytest.mark.slow),
    ],
    ids=len,
)
def test_the_script_runs_at_toy_size(sections: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--toy", "--device", "cpu", "--out", str(tmp_path), "--only", *sections]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # more only lose time at this size
    ended = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert list(results) == sections
    if "agreement" in sections:
        assert len(results["agreement"]) == 6
    else:
        assert [row["strategy"] for row in results["recurrent"]] == ["fedavg", "scaffold", "fedala"]
    assert all(row["ok"] for row in results.get("agreement", []) + results.get("recurrent", []))
    assert (tmp_path / "results.md").read_text(encoding="utf-8").count("## ") == len(sections)
