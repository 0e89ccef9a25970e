"""RESULTS.md is the report of the rows in docs/runs/."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fedrun.cli import report
from fedrun.cli.entrypoint import exit_status

DOCS = Path(__file__).parents[2] / "docs"


def test_every_number_comes_from_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in DOCS.glob("runs/*.tar.xz"):
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    assert exit_status(report.run, "fedrun-report", ["outputs", "--results", "--to", "RESULTS.md"]) == 0
    assert Path("RESULTS.md").read_text() == (DOCS / "RESULTS.md").read_text(), "run make results"
