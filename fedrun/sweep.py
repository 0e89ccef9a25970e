"""Sweeps: every job leaves its outcome in the sweep's folder; the end of the sweep shows them in one table."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

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
        """Write it to the job's folder."""
        (Path(folder) / OUTCOME).write_text(json.dumps(asdict(self)), encoding="utf-8")


def outcomes(sweep: Path) -> list[Outcome]:
    """The outcomes of a sweep's jobs, in the jobs' order."""
    files = sorted(sweep.glob(f"*/{OUTCOME}"), key=lambda path: int(path.parent.name))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [Outcome(tuple(record["overrides"]), record["summary"], record["error"]) for record in records]


class Sweep(Callback):
    """Hydra's callback around a sweep: shows its results after the last job."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print one table over all jobs; exit with status 1 if any failed."""
        from rich.console import Console

        from fedrun.report.sweep import sweep_table

        ended = outcomes(Path(config.hydra.sweep.dir))
        console = Console()
        completed = [outcome.summary for outcome in ended if outcome.summary is not None]
        failed = [outcome for outcome in ended if outcome.error is not None]
        if completed:
            console.print(sweep_table(completed))
        for outcome in failed:
            print(f"failed: {' '.join(outcome.overrides)}: {outcome.error}", file=sys.stderr)
        if failed:
            print(f"fedrun: {len(failed)} of {len(ended)} jobs failed", file=sys.stderr)
            sys.exit(1)
