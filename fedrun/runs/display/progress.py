"""The progress of a run: rounds, speeds, best score and targets. The displays draw it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fedrun.data.evaluation_split import pooled_metric
from fedrun.data.targets import Target
from fedrun.data.tasks.metric_names import lower_is_better, recorded_score
from fedrun.experiment.observer import Row, RunInfo, round_of

WINDOW = 32
"""Speeds are means over this many evaluated rounds: steady, but quick to follow a machine that slows down."""


@dataclass(frozen=True)
class Mark:
    """The position of a run at a moment: ``seconds`` on the clock, rounds made, client samples processed so far."""

    seconds: float
    round: int
    client_samples: float


class Progress:
    """The progress of one run, updated by its rows.

    Attributes:
        run: the run.
        row: the newest row, or None before the first.
        best: the best value of the task's score, such as the accuracy, on the test samples, and its (first) round, or
            None.
        hits: first round r >= 1 at which each target's metric reached it; None if it has not.
        cohort: number of the round in progress, clients done in it, its clients; or None before the first.
    """

    def __init__(self, run: RunInfo, clock: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.row: Row | None = None
        self.best: tuple[float, int] | None = None
        self.hits: dict[Target, int | None] = dict.fromkeys(run.targets)
        self.cohort: tuple[int, int, int] | None = None
        self._clock = clock
        self._started = clock()
        self._marks: deque[Mark] = deque(maxlen=WINDOW)
        for row in run.history:
            self._take(row)
        if self.row is not None and round_of(self.row) == run.resumed_after:
            self._mark(self.row)

    @property
    def round(self) -> int:
        """Rounds made so far."""
        evaluated = 0 if self.row is None else round_of(self.row)
        return max(evaluated, self.run.resumed_after or 0, self._trained)

    @property
    def _trained(self) -> int:
        """Rounds whose clients have all finished in this session."""
        if self.cohort is None:
            return 0
        round, done, cohort = self.cohort
        return round if done == cohort else round - 1

    @property
    def elapsed(self) -> float:
        """Seconds since this session of the run began."""
        return self._clock() - self._started

    @property
    def rounds_per_second(self) -> float | None:
        return self._speed(lambda mark: mark.round)

    @property
    def samples_per_second(self) -> float | None:
        """Client samples trained per second; None before two rounds are known, or if rows do not count them."""
        return self._speed(lambda mark: mark.client_samples)

    @property
    def seconds_left(self) -> float | None:
        """Expected seconds until the last round of the current phase is evaluated."""
        speed = self.rounds_per_second
        if not speed:
            return None
        newest = self._marks[-1]
        last = self.run.rounds if newest.round >= self.run.first_rounds else self.run.first_rounds
        return max(0.0, (last - newest.round) / speed - (self._clock() - newest.seconds))

    @property
    def before_last_phase(self) -> bool:
        """Whether rounds of another phase, whose speed is not known yet, follow those of ``seconds_left``."""
        return self.round < self.run.first_rounds < self.run.rounds

    def client(self, round: int, done: int, cohort: int) -> None:
        """``done`` of ``cohort`` clients have finished in the round that will make ``round`` rounds complete."""
        self.cohort = (round, done, cohort)

    def take(self, row: Row) -> tuple[Target, ...]:
        """Add a new row; return the targets that it is the first to reach."""
        reached = self._take(row)
        self._mark(row)
        return reached

    def _take(self, row: Row) -> tuple[Target, ...]:
        self.row = row
        name = recorded_score(row)
        score, sign = pooled_metric(row, name), -1 if lower_is_better(name) else 1
        if score is not None and not math.isnan(score) and (self.best is None or sign * score > sign * self.best[0]):
            self.best = (score, round_of(row))
        if round_of(row) < 1:
            return ()
        missing = [target for target, hit in self.hits.items() if hit is None]
        reached = tuple(
            target for target in missing if (value := row.get(target.metric)) is not None and target.reached(value)
        )
        self.hits.update(dict.fromkeys(reached, round_of(row)))
        return reached

    def _mark(self, row: Row) -> None:
        samples = row.get("cost/client_samples")
        switch, rounds = self.run.first_rounds, self.run.rounds
        if self._marks and self._marks[-1].round <= switch <= round_of(row) and switch < rounds:
            self._marks.clear()  # the rounds of another phase take another time; the first one also prepares the phase
        self._marks.append(Mark(self._clock(), round_of(row), math.nan if samples is None else samples))

    def _speed(self, count: Callable[[Mark], float]) -> float | None:
        if len(self._marks) < 2:
            return None
        first, last = self._marks[0], self._marks[-1]
        seconds, amount = last.seconds - first.seconds, count(last) - count(first)
        return amount / seconds if seconds > 0 and amount >= 0 else None
