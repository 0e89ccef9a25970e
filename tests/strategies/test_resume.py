"""Every strategy, interrupted after two rounds and taken up again, ends exactly as if it had not been."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedrun import session
from fedrun.config import build_experiment, compose, options
from fedrun.session import run
from fedrun.tracking.base import Observer, Row

SETTING = (
    "rounds=5",
    "partition.clients=8",
    "clients_per_round=5",
    "model.hidden=[8]",
    "local.lr=0.05",
    "tracking=none",
    "evaluation.train_clients=false",
)


class Interrupts(Observer):
    """Ctrl-C, right after a round's row was written."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_row(self, row: Row) -> None:
        if row["round"] == self.round:
            raise KeyboardInterrupt


def rows(folder: Path) -> list[Mapping[str, Any]]:
    """The rows without their times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if not key.startswith("time/")} for line in lines]


@pytest.mark.parametrize("strategy", options("strategy"))
def test_interrupted_and_resumed(strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "plot_labels", lambda _, path: path.write_bytes(b""))
    monkeypatch.setattr(session, "plot_curves", lambda _, path, __: path.write_bytes(b""))
    whole, parted = (
        compose([f"strategy={strategy}", *SETTING, f"output_dir={tmp_path / name}"]) for name in ("whole", "parted")
    )
    run(whole, build_experiment(whole.config))
    with pytest.raises(KeyboardInterrupt):
        run(parted, build_experiment(parted.config), [Interrupts(2)])
    assert not (parted.folder / "summary.json").exists()
    run(parted, build_experiment(parted.config))
    assert [row["round"] for row in rows(parted.folder)] == [0, 1, 2, 3, 4, 5]
    assert rows(parted.folder) == rows(whole.folder)
    assert (parted.folder / "model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()
