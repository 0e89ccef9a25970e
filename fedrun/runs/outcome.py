"""The outcome of a job of a sweep."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedrun.system.atomic_file import atomic_write
from fedrun.system.writing import writing

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one job of a sweep.

    Attributes:
        overrides: overrides of the job.
        summary: summary of a completed run; None if it failed.
        error: one line about a failed run; None if it completed.
        earlier: whether the run had been finished before the sweep.
        setting: the setting whose values for its strategy the run takes: its choice of ``hparams``, or its dataset.
    """

    overrides: tuple[str, ...]
    summary: dict[str, Any] | None
    error: str | None
    earlier: bool = False
    setting: str = ""

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
    return [read_outcome(path) for path in outcome_files(sweep)]


def outcome_files(sweep: Path) -> list[Path]:
    """The files of the outcomes of a sweep's jobs, in the jobs' order."""
    files = [path for path in sweep.glob(f"*/{OUTCOME}") if path.parent.name.isdecimal()]
    return sorted(files, key=lambda path: int(path.parent.name))


def read_outcome(path: Path) -> Outcome:
    """The outcome in a file.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: the file has something else.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    return Outcome(**{**record, "overrides": tuple(record["overrides"])})


def finished_earlier(folder: Path) -> bool:
    """Whether the run of the job with this folder had been finished before the sweep."""
    path = folder / OUTCOME
    return path.is_file() and read_outcome(path).earlier
