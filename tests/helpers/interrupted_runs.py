"""Interrupting a run after a round, and what it has recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrun.experiment.observer import Observer, Row


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
