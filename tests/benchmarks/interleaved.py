"""Timing two pieces of work against each other: alternately, in one process, quoted as a ratio."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds that pass, and seconds of processors that this process uses."""


@dataclass(frozen=True)
class Comparison:
    """Times of the work under test and of its baseline, in seconds, pair by pair."""

    tested: tuple[float, ...]
    baseline: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over the pairs of tested / baseline."""
        return statistics.median(t / b for t, b in zip(self.tested, self.baseline, strict=True))

    def __str__(self) -> str:
        tested, baseline = statistics.median(self.tested), statistics.median(self.baseline)
        return f"{self.ratio:.3f} x  (median of {len(self.tested)} pairs; {tested:.3f} s against {baseline:.3f} s)"


def interleave(
    tested: Callable[[], object],
    baseline: Callable[[], object],
    pairs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Time both alternately, after one untimed call of each."""
    tested(), baseline()
    times: list[tuple[float, float]] = []
    for _ in range(pairs):
        began = clock()
        tested()
        middle = clock()
        baseline()
        times.append((middle - began, clock() - middle))
    return Comparison(tuple(t for t, _ in times), tuple(b for _, b in times))
