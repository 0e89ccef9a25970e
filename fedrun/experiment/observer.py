"""Observers of a run: the progress display and the trackers read the same rows that go to ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrun.config.own_methods import check_methods
from fedrun.data.targets import Target

Row = Mapping[str, float | int | None]
"""One evaluated round: ``{"round": 3, "test/accuracy": 0.71, ...}``; ``round`` counts server updates made so far."""


def round_of(row: Row) -> int:
    """The number of server updates made when the row was written."""
    number = row["round"]
    assert isinstance(number, int)
    return number


@dataclass(frozen=True)
class RunInfo:
    """The description of a run that observers receive when it begins.

    Attributes:
        folder: the run's folder.
        title: one short line, such as ``turbosvm · femnist · seed 0``.
        decisions: settings that the command does not name, such as ``{"model": "mlp, ..."}``.
        group: the run's folder without the seed, relative to the output folder; the same for all seeds.
        seed: the run's seed.
        rounds: number of rounds the run will make.
        first_rounds: the rounds of the first phase; equal to ``rounds`` for a strategy without a post-training phase.
        targets: values of metrics whose first round is reported.
        config: the composed configuration as plain containers.
        history: the rows already written, when the run is resumed; empty for a new run.
        resumed_after: the round after which the run is resumed, which need not have a row; None for a new run.
        choices: the chosen option of each group, such as ``{"strategy": "fedavg", "dataset": "digits"}``.
        overrides: the differences from the default configuration.
        sweep: the name of the sweep that the run is a job of; None: a single run.
        commit: commit of fedrun, if it runs from a checkout.
        tracking_id: identifies the run's curve at a tracking service; kept in the checkpoint.
    """

    folder: Path
    title: str
    decisions: Mapping[str, str]
    group: str
    seed: int
    rounds: int
    first_rounds: int
    targets: tuple[Target, ...]
    config: Mapping[str, Any]
    history: tuple[Row, ...]
    resumed_after: int | None
    choices: Mapping[str, str]
    overrides: tuple[str, ...]
    sweep: str | None
    commit: str | None
    tracking_id: str


class Observer:
    """Watches a run. An observer that raises is dropped with a warning; the run continues."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_methods(cls)

    def on_start(self, run: RunInfo) -> None:
        """The run begins or is resumed."""

    def on_client(self, round: int, done: int, cohort: int) -> None:
        """``done`` of ``cohort`` clients of a round have finished local training."""

    def on_row(self, row: Row) -> None:
        """A round was evaluated and its row written."""

    def on_end(self, summary: Mapping[str, Any]) -> None:
        """The run is complete; ``summary`` is the content of ``summary.json``."""

    def on_stop(self, round: int) -> None:
        """The run ends before it is complete, by an error or Ctrl-C; it can be continued after this round."""

    def close(self) -> None:
        """The run is over, completed or not. Called once, also after an error or Ctrl-C.

        Not called if the run does not begin, because it was finished earlier or cannot be started or resumed.
        """
