"""How a job of a sweep ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedrun.runs.folder import writing
from fedrun.system.atomic_file import atomic_write

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """How one job of a sweep ended.

    Attributes:
        overrides: what makes the job differ from the default configuration.
        summary: of a completed run.
        error: one line, of a failed one.
    """

    overrides: tuple[str, ...]
    summary: dict[str, Any] | None
    error: str | None

    def save(self, folder: str | Path) -> None:
        """Write it to the job's folder.

        Raises:
            InputError: it cannot be written.
        """
        path = Path(folder) / OUTCOME
        with writing(path), atomic_write(path) as file:
            file.write(json.dumps(asdict(self)).encode())


def outcomes(sweep: Path) -> list[Outcome]:
    """The outcomes of a sweep's jobs, in the jobs' order."""
    files = sorted(sweep.glob(f"*/{OUTCOME}"), key=lambda path: int(path.parent.name))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [Outcome(tuple(record["overrides"]), record["summary"], record["error"]) for record in records]
