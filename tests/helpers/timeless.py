"""What must be the same for every run of the same command: its metrics, but for times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every run below a folder, but for times."""
    found = {}
    for path in sorted(folder.glob("outputs/runs/**/metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        timeless = [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]
        found[str(path.relative_to(folder))] = timeless
    return found
