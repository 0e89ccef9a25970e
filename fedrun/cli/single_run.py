"""A single run: from the composed configuration to the result table, and the exit status if it ends early."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fedrun.cli.screen_log import log_to_screen
from fedrun.execution.launched_ranks import join, launched
from fedrun.execution.ranks import SINGLE_PROCESS, RankLostError, Ranks
from fedrun.system.errors import Defect, InputError, RunError, expected_error
from fedrun.system.signals import stop_behind

if TYPE_CHECKING:
    from fedrun.config.composed import Composed
    from fedrun.data.federation import Federation
    from fedrun.experiment.experiment import Experiment


def single_run(composed: Composed) -> None:
    """A single run: it ends with its result table, or ends the process with an exit status."""
    from fedrun.experiment.experiment import build_experiment

    ranks = SINGLE_PROCESS
    try:
        ranks = _ranks()
        with ranks.raise_on_all():
            experiment = build_experiment(composed)
        from fedrun.runs.division import divide  # loads modules that rejected configurations do not need

        processes, federation = (1, None) if launched() else divide(experiment)
    except Exception as error:  # shown in full by `failed` if it was not expected
        sys.exit(failed(ranks, error))
    work = partial(_run_part, experiment, federation)
    if status := work(ranks) if processes == 1 else _in_processes(processes, work):
        sys.exit(status)


def _in_processes(count: int, work: Callable[[Ranks], int]) -> int:
    """Compute a run in several processes forked from this one; return the exit status of this one."""
    from fedrun.execution.forked_ranks import started

    try:
        with started(count, work) as leader:
            return work(leader)
    except RunError as error:  # the others cannot be reached
        return _ended(SINGLE_PROCESS, error)


def _run_part(experiment: Experiment, federation: Federation | None, ranks: Ranks) -> int:
    """One process's part of a run; its exit status."""
    from rich.console import Console

    from fedrun.experiment.tracking import Tracking
    from fedrun.report.sweep_table import show
    from fedrun.runs.display.result_table import result_table
    from fedrun.runs.folder import has_results
    from fedrun.runs.run import run

    try:
        if not ranks.is_leader:
            log_to_screen(logging.CRITICAL)
            run(experiment, ranks=ranks, federation=federation)
            ranks.leave()
            return 0
        log_to_screen(logging.INFO)
        earlier = not experiment.overwrite and has_results(experiment.folder)
        summary = run(experiment, ranks=ranks, federation=federation)
        if earlier:
            # a tracker that was chosen since then would otherwise silently stay empty
            trackers = "" if type(experiment.tracking) is Tracking else "; trackers receive nothing new"
            print(
                f"{experiment.record.title}: finished earlier{trackers}; overwrite=true computes it again", flush=True
            )
        show(result_table(summary), Console())
        ranks.leave()
        return 0
    except Exception as error:  # shown in full by `failed` if it was not expected
        return failed(ranks, error)


def composition_failed(line: str) -> int:
    """Report once for all processes that the configuration could not be composed; return the exit status."""
    ranks = SINGLE_PROCESS
    try:
        ranks = _ranks()
        with ranks.raise_on_all():
            raise InputError(line)
    except (InputError, RunError) as error:
        return _ended(ranks, error)


def failed(ranks: Ranks, error: Exception) -> int:
    """Report why the run ends; return the exit status.

    Raises:
        Defect: the error was not expected. It is shown in full, unlike errors of the composition.
        KeyboardInterrupt: a signal has stopped the run, which caused the error.
    """
    if (stop := stop_behind(error)) is not None:
        raise stop from None
    if (known := expected_error(error)) is None:
        raise Defect from error
    return _ended(ranks, known)


def _ended(ranks: Ranks, error: InputError | RunError) -> int:
    """Report once for all processes why the run ends; return the exit status."""
    if ranks.is_leader:
        print(f"fedrun: {error}", file=sys.stderr, flush=True)
    if ranks.leave(str(error), isinstance(error, RankLostError)):
        print(f"fedrun: {error}", file=sys.stderr, flush=True)
    return error.exit_status


def _ranks() -> Ranks:
    """The processes that torchrun has started, or this one."""
    return join() if launched() else SINGLE_PROCESS
