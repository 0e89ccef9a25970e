"""The table of one's own paper in docs/tables.md is made by the commands that stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedrun.cli import report
from fedrun.cli.entrypoint import exit_status
from fedrun.config.options import with_config_dir
from fedrun.report.papers.described_tables import load_table
from fedrun.report.papers.figure import Figure
from fedrun.report.papers.table_reading import TableReading

from ..helpers.forked import Fedrun

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## How do I make a table of my own paper?\n")[2]
COMMANDS = [shlex.split(line, comments=True) for line in SECTION.splitlines() if line.startswith("    fedrun")]
QUICK = ("hydra/launcher=basic", "hardware.threads=1", "tracking=none", "display=none")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the section's files, in which the commands are run."""
    for name, content in re.findall(r"`(conf/\S+)`[^`]*:\n\n```\w+\n(.*?)```", SECTION, re.DOTALL):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_commands(fedrun: Fedrun, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first makes runs at scale smoke; for the last, which leaves these out, there is one seed at scale full."""
    sweep, table, figure, results = COMMANDS
    assert [command[0] for command in COMMANDS] == ["fedrun", *["fedrun-report"] * 3]
    for scale in ((), ("scale=full", "seed=0", "strategy=fedavg")):
        arguments = [word for word in sweep[1:] if not (scale and word.startswith("scale="))]
        ended = fedrun(*arguments, *scale, *QUICK, folder=folder)
        assert ended.status == 0, ended.err
    assert exit_status(report.run, "fedrun-report", [*table[1:], "--scale", "smoke"]) == 0
    out = capsys.readouterr().out
    columns = [f"beta={beta}: {part}" for beta in ("0.1", "1.0") for part in ("paper", "ours", "difference")]
    assert next(cells(line)[1:] for line in out.splitlines() if line.startswith("| strategy")) == columns
    rows = {cells(line)[0]: cells(line)[1:] for line in out.partition("rounds_to_0.80")[0].splitlines() if "|" in line}
    assert [rows["fedavg"][0], rows["fedavg"][3], rows["fedprox"][3]] == ["71.3 ± 2.1", "93.0 ± 0.4", "-"]
    assert float(rows["fedavg"][2]) == pytest.approx(float(rows["fedavg"][1]) - 71.3, abs=0.051)
    assert "oracle" not in rows and "Out of reach, 1 of 7 cells: the oracle's code is not published.\n" in out
    assert "Scale: smoke (fedrun --config-dir conf experiment=mine/table1 scale=smoke). " in out
    assert exit_status(report.run, "fedrun-report", table[1:]) == 0  # full, half filled
    (row,) = [cells(line) for line in capsys.readouterr().out.splitlines() if line.startswith("| fedprox  |      72.8")]
    assert row[1:] == ["72.8 ± 1.9", "not run", "-", "-", "not run", "-"]
    assert exit_status(report.run, "fedrun-report", figure[1:]) == 0
    assert Path("outputs/pictures/mine_figure1.png").read_bytes().startswith(b"\x89PNG")
    assert exit_status(report.run, "fedrun-report", results[1:]) == 0
    assert "\n\n## Mine, table 1. " in Path(results[-1]).read_text()


def cells(line: str) -> list[str]:
    """The cells of a row."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_every_key_is_explained(folder: Path) -> None:
    explained = {
        key for row in re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)
    }
    fields = {*TableReading.__dataclass_fields__, *Figure.__dataclass_fields__} - {"experiment"}
    assert explained == fields
    with with_config_dir(folder / "conf"):
        assert load_table("mine/table1").number == "T1"
