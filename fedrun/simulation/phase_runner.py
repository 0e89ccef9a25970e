"""The local work of a phase's rounds, by the executor that is requested or chosen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch

from fedrun.execution.choice import (
    EXECUTORS,
    ExecutorTimings,
    is_trial,
    least_seconds,
    next_executor,
    supported_executor,
)
from fedrun.execution.context import ExecutionContext, Progress
from fedrun.execution.distributed_cohort import DistributedCohort
from fedrun.execution.ranks import Ranks
from fedrun.experiment.state import State
from fedrun.simulation.round_runner import RoundResult, RoundRunner
from fedrun.strategies.phase import Phase

log = logging.getLogger(__name__)


class PhaseRunner:
    """Runs the local work of all rounds of a phase.

    Args:
        phase: whose rounds.
        context: the phase's clients and how they train, without thresholds.
        requested: the name of an executor, or ``auto``; None: by the rule.
        ranks: the processes that share the work.
        thresholds: computes the threshold of each client, float64 ``[N]``; called only if the client strategy uses it.
    """

    def __init__(
        self,
        phase: Phase,
        context: ExecutionContext,
        requested: str | None,
        ranks: Ranks,
        thresholds: Callable[[], torch.Tensor],
    ) -> None:
        self.phase = phase
        self.context = context
        self._requested = requested
        self._ranks = ranks
        self._thresholds = thresholds
        self._runners: dict[str, RoundRunner] = {}

    @cached_property
    def _supported(self) -> str:
        """The requested executor, if it supports the work, or ``auto``."""
        return supported_executor(self._requested, self.context, self.phase.cohort_size // self._ranks.count)

    def executor_name(self, timings: ExecutorTimings) -> str:
        """The name of the executor of the next round."""
        return next_executor(self._supported, timings)

    @property
    def client_to_rank(self) -> torch.Tensor | None:
        """The rank that trains each client and holds its state, int64 ``[N]``; None: any rank can train any client."""
        return self.round_runner(()).cohort.client_to_rank

    def round_runner(self, timings: ExecutorTimings) -> RoundRunner:
        """The executor of the next round."""
        name = self.executor_name(timings)
        if name not in self._runners:
            context = self.context
            if "threshold" in self.phase.client.wants:
                context = replace(context, thresholds=self._thresholds().to(context.network.vector.device))
            executor = EXECUTORS[name](context)
            distributed = DistributedCohort(executor, self._ranks, bool(context.state_lengths))
            self._runners[name] = RoundRunner(executor, distributed, self.phase)
        return self._runners[name]

    def run(self, state: State, cohort: torch.Tensor, progress: Progress) -> tuple[RoundResult, ExecutorTimings]:
        """The local work of a round's cohort, int64 ``[C]``, and the timings of executors after it."""
        began = time.perf_counter()
        result = self.round_runner(state.timings).run(state, cohort, progress)
        return result, self._timed(state, time.perf_counter() - began, result)

    def _timed(self, state: State, seconds: float, result: RoundResult) -> ExecutorTimings:
        """The timings of executors after a round whose local work took so many seconds."""
        if not is_trial(self._supported, state.timings) or not result.client_samples:
            return state.timings
        # the leader's seconds, because all ranks must make the same choice
        seconds_per_sample = self._ranks.broadcast(seconds) / result.client_samples
        timings = (*state.timings, (self.executor_name(state.timings), seconds_per_sample))
        if not is_trial(self._supported, timings):
            took = ", ".join(f"{name} {1e6 * least:.3g} µs" for name, least in least_seconds(timings).items())
            fastest = self.executor_name(timings)
            log.info("hardware.executor=auto: per sample %s; %s from round %d on", took, fastest, state.round + 2)
            self._runners = {fastest: self.round_runner(timings)}
        return timings
