"""One model's update from a cohort on one executor."""

from __future__ import annotations

from fedrun.execution.aggregator import Aggregator
from fedrun.execution.context import CohortJob, Progress
from fedrun.execution.executor import Executor
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import CohortUpdate, ServerState, ServerStrategy


def train_cohort(
    executor: Executor,
    server: ServerStrategy,
    state: ServerState,
    job: CohortJob,
    progress: Progress = lambda done: None,
) -> tuple[CohortUpdate, ClientStates]:
    """Train the cohort of a job; the server's update and the next client states."""
    aggregator = Aggregator(executor.context, server, state, job.cohort, job.cohort, job.client_states.keep)
    for result in executor.client_results(job, progress):
        aggregator.add(result)
    update = aggregator.result()
    return update, executor.next_states(job.client_states, aggregator.client_states, update.excluded)
