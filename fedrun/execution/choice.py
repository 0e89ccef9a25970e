"""The choice of an executor: the requested one, or the faster of two, measured in a run's first rounds."""

from __future__ import annotations

import logging

from fedrun.execution.context import ExecutionContext
from fedrun.execution.executor import Executor
from fedrun.execution.in_process import InProcess
from fedrun.execution.vectorized import Vectorized

log = logging.getLogger(__name__)

EXECUTORS: dict[str, type[Executor]] = {"in_process": InProcess, "vectorized": Vectorized}

AUTO = "auto"
"""The request for the fastest executor."""

TRIALS = 2
"""Timed rounds of each executor. The faster one counts: the first also builds objects for later rounds."""

ExecutorTimings = tuple[tuple[str, float], ...]
"""The names of timed executors in the order of their rounds, each with its seconds of local work per sample."""


def supported_executor(requested: str, context: ExecutionContext, warns: bool = True) -> str:
    """The requested executor, or ``in_process`` if it does not support the work.

    Args:
        requested: a key of :data:`EXECUTORS`, or :data:`AUTO`.
        context: the work.
        warns: whether to warn if the requested executor does not support the work. ``auto`` requests none in
            particular.
    """
    for name in EXECUTORS if requested == AUTO else [requested]:
        if reason := EXECUTORS[name].unsupported(context):
            if warns and requested != AUTO:
                log.warning(
                    "hardware.executor=%s does not support %s; using hardware.executor=in_process", name, reason
                )
            return "in_process"
    return requested


def is_trial(requested: str, timings: ExecutorTimings) -> bool:
    """Whether the next round is timed to choose an executor."""
    return requested == AUTO and len(timings) < TRIALS * len(EXECUTORS)


def next_executor(requested: str, timings: ExecutorTimings) -> str:
    """The executor of the next round: a key of :data:`EXECUTORS`.

    Args:
        requested: one of them, or :data:`AUTO`.
        timings: so far. Without timings, as before the first round, ``auto`` is ``in_process``.
    """
    if requested != AUTO:
        return requested
    if is_trial(requested, timings):
        return tuple(EXECUTORS)[len(timings) % len(EXECUTORS)]
    seconds = least_seconds(timings)
    return min(seconds, key=seconds.__getitem__)


def least_seconds(timings: ExecutorTimings) -> dict[str, float]:
    """The least seconds per sample of each timed executor."""
    return {name: min(seconds for other, seconds in timings if other == name) for name, _ in timings}
