"""The rounds that a run needs to reach a target value.

A curve is two sequences: the evaluated rounds (server updates made, ascending; not necessarily every one) and the
metric's value there. Round 0 is the initial model; it never counts as having reached a target.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fedrun.data.targets import Target


def first_hit(rounds: Sequence[int], values: Sequence[float], target: Target) -> int | None:
    """The first evaluated round from 1 on whose value reaches the target; None if there is none (TurboSVM-FL)."""
    pairs = zip(rounds, values, strict=True)
    return next((round for round, value in pairs if round >= 1 and target.reached(value)), None)


def interpolated(rounds: Sequence[int], values: Sequence[float], target: Target) -> float | None:
    """The point where the curve's running best, linear between evaluated rounds, reaches the target (McMahan et al.,
    2017).

    An initial model that has not reached the target is a point to interpolate from; one that has is left out. A curve
    whose first point is at the target reaches it there. None if the target is not reached. Published tables round up.
    """
    goal, before, best = target.sign * target.value, 0, -math.inf
    for round, value in zip(rounds, (target.sign * value for value in values), strict=True):
        if round < 1 and value >= goal:
            continue
        if value >= goal:
            # Without an earlier point (-inf) there is nothing to interpolate.
            share = (goal - best) / (value - best) if best > -math.inf else 1.0
            return before + share * (round - before)
        before, best = round, max(best, value)
    return None


def describe(hits: Sequence[int | None], cap: int) -> str:
    """A table's cell for a setting's seeds: ``103.6 ± 3.2`` rounds, or ``>200`` if any seed did not reach the target.

    The deviation is over the seeds with ddof = 0; it is left out for a single seed. ``-`` without seeds.

    Args:
        hits: each seed's round; None if the target was not reached.
        cap: the rounds that were made.
    """
    reached = [hit for hit in hits if hit is not None]
    if not hits:
        return "-"
    if len(reached) < len(hits):
        return f">{cap}"
    mean = f"{statistics.fmean(reached):.1f}"
    return mean if len(reached) == 1 else f"{mean} ± {statistics.pstdev(reached):.1f}"
