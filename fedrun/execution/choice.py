"""Which executor works: the one that was asked for, or the faster of two, measured on a run's first rounds."""

from __future__ import annotations

import logging

from fedrun.execution.context import ExecutionContext
from fedrun.execution.executor import Executor
from fedrun.execution.in_process import InProcess
from fedrun.execution.vectorized import Vectorized

log = logging.getLogger(__name__)

EXECUTORS: dict[str, type[Executor]] = {"in_process": InProcess, "vectorized": Vectorized}

AUTO = "auto"
"""The name under which the faster of all executors is asked for."""

TRIALS = 2
"""Rounds that each is timed on. The better one counts: in its first, an executor also builds what the others use."""

ExecutorTimings = tuple[tuple[str, float], ...]
"""Executors on trial in the order of their rounds, each with the seconds of local work per sample processed."""


def settled(asked: str, context: ExecutionContext, warns: bool = True) -> str:
    """What was asked for, or, where an executor cannot do the work, the sequential one.

    Args:
        asked: a key of :data:`EXECUTORS`, or :data:`AUTO`.
        workplace: where the work is.
        warns: say in a warning why it is not the one asked for (``auto`` asks for none in particular); False where
            somebody else has said so.
    """
    for name in EXECUTORS if asked == AUTO else [asked]:
        if reason := EXECUTORS[name].refusal(context):
            if warns and asked != AUTO:
                log.warning(
                    "hardware.executor=%s does not support %s; using hardware.executor=in_process", name, reason
                )
            return "in_process"
    return asked


def chosen(asked: str, context: ExecutionContext, warns: bool = True) -> Executor:
    """The executor of this name, a key of :data:`EXECUTORS`, or what is :func:`settled` instead."""
    return EXECUTORS[settled(asked, context, warns)](context)


def undecided(asked: str, timings: ExecutorTimings) -> bool:
    """Whether the next round is part of a trial."""
    return asked == AUTO and len(timings) < TRIALS * len(EXECUTORS)


def due(asked: str, timings: ExecutorTimings) -> str:
    """The executor that carries out the next round: a key of :data:`EXECUTORS`.

    Args:
        asked: one of them, or :data:`AUTO`.
        pace: the trial so far. Without one, as for what is done before the first round, ``auto`` is ``in_process``.
    """
    if asked != AUTO:
        return asked
    if undecided(asked, timings):
        return tuple(EXECUTORS)[len(timings) % len(EXECUTORS)]
    least = best(timings)
    return min(least, key=least.__getitem__)


def best(timings: ExecutorTimings) -> dict[str, float]:
    """Every executor's least seconds per sample."""
    return {name: min(seconds for each, seconds in timings if each == name) for name, _ in timings}
