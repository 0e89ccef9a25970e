"""The choice of an executor: the requested one, by a rule, or the faster of two, measured in a run's first rounds."""

from __future__ import annotations

import logging

from fedrun.execution.context import ExecutionContext
from fedrun.execution.executor import Executor
from fedrun.execution.in_process import InProcess
from fedrun.execution.stacked import StackedPerceptron
from fedrun.execution.vectorized import Vectorized
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.precision import Precision
from fedrun.training.fused_sgd import LARGE

log = logging.getLogger(__name__)

EXECUTORS: dict[str, type[Executor]] = {"in_process": InProcess, "vectorized": Vectorized}

AUTO = "auto"
"""The request for the fastest executor."""

FEWEST = 4
"""The smallest number of clients that the rule trains side by side."""

TRIALS = 2
"""Timed rounds of each executor. The faster one counts: the first also builds objects for later rounds."""

ExecutorTimings = tuple[tuple[str, float], ...]
"""The names of timed executors in the order of their rounds, each with its seconds of local work per sample."""


def trains_side_by_side(network: FlatNetwork, precision: Precision, clients: int) -> bool:
    """Whether ``vectorized`` is faster by the rule: for perceptrons, on a CPU without large layers, and some clients.

    Their steps cost little arithmetic, so one step for all clients saves most of the time. In process on a CPU the
    steps of large layers are fused, which is as fast. The rule measures nothing, so a repeated run is identical.

    Args:
        network: of each client.
        precision: of the SGD steps.
        clients: of a round in this process.
    """
    on_gpu = network.vector.device.type == "cuda"
    return (
        precision == "float32"
        and clients >= FEWEST
        and (on_gpu or all(parameter.numel() < LARGE for parameter in network.network.parameters()))
        and StackedPerceptron.of(network.network) is not None
    )


def supported_executor(requested: str | None, context: ExecutionContext, clients: int, warns: bool = True) -> str:
    """The requested executor, or ``in_process`` if it does not support the work.

    Args:
        requested: a key of :data:`EXECUTORS`, or :data:`AUTO`; None: by the rule.
        context: the work.
        clients: of a round in this process.
        warns: whether to warn if the requested executor does not support the work. ``auto`` and the rule request none
            in particular.
    """
    chosen = requested
    if chosen is None:
        together = trains_side_by_side(context.network, context.local.precision, clients)
        chosen = "vectorized" if together else "in_process"
    for name in EXECUTORS if chosen == AUTO else [chosen]:
        if reason := EXECUTORS[name].unsupported(context):
            if warns and requested in EXECUTORS:
                log.warning(
                    "hardware.executor=%s does not support %s; using hardware.executor=in_process", name, reason
                )
            return "in_process"
    return chosen


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
