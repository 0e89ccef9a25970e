"""Run an experiment in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedrun.data.federation import Federation
from fedrun.execution.hardware import restored_settings
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.observer import Observer
from fedrun.runs.folder import CLIENT_STATES, LOG, clear, finished, locked, require_writable
from fedrun.runs.initial_check import check_weights_of_run
from fedrun.runs.log_file import kept_messages, log_to
from fedrun.runs.observers import chosen_observers
from fedrun.runs.session import Session
from fedrun.simulation.simulation import Simulation
from fedrun.system.errors import InputError
from fedrun.system.randomness import restored_generators
from fedrun.system.source_commit import loaded_commit


@restored_settings()
def run(
    experiment: Experiment,
    observers: Sequence[Observer] | None = None,
    parallel_jobs: int = 1,
    ranks: Ranks = SINGLE_PROCESS,
    federation: Federation | None = None,
) -> dict[str, Any]:
    """Run an experiment in its folder, or resume it; return its summary.

    A finished run is not computed again unless ``overwrite`` is set: its summary is returned. An interrupted run
    continues from its checkpoint and ends with the metrics of an uninterrupted one. On Ctrl-C a checkpoint is written
    before ``KeyboardInterrupt`` is raised. Afterwards PyTorch has the number of threads and global generators of random
    numbers have the states that they had before.

    Several ranks compute a run together. Each of them calls this function; only the leader writes to the folder. When
    one of them receives a signal to stop, all stop after the round.

    Args:
        experiment: what to run, from :func:`fedrun.experiment.experiment.build_experiment` or changed by ``replace``.
        observers: see :class:`fedrun.experiment.observer.Observer`; one that raises is dropped with a warning. None:
            the display and the trackers that the experiment's keys choose, as in the command (with several ranks: of
            the leader only).
        parallel_jobs: number of runs that share this machine's cores.
        ranks: the processes that compute this run together.
        federation: the clients and their samples, if they were prepared before.

    Raises:
        InputError: the data, the hardware or the run's folder cannot be used, or nothing identifies an object of the
            experiment.
        RunError: the run cannot continue, or the ranks were stopped (:class:`fedrun.execution.ranks.StoppedError`).
    """
    if not isinstance(experiment, Experiment):
        raise InputError(f"fedrun.run: {type(experiment).__name__}; allowed: what fedrun.build_experiment returns")
    loaded_commit()  # now, not when the summary is written: the checkout may change during the run
    record = experiment.record
    folder = record.folder
    ranks.require_same("the configuration", f"{record.hash}, seed {experiment.seed}")
    summary = None
    with ranks.raise_on_all():
        if ranks.is_leader:
            summary = None if experiment.overwrite else earlier_summary(experiment)
            if summary is None:
                require_writable(folder)
    if (summary := ranks.broadcast(summary)) is not None:
        return summary
    with kept_messages() as messages:
        simulation = build_simulation(experiment, parallel_jobs, ranks, federation)
    with ExitStack() as contexts:
        with ranks.raise_on_all():
            if ranks.is_leader:
                contexts.enter_context(locked(folder))
                if experiment.overwrite:
                    clear(folder)
                else:
                    summary = earlier_summary(experiment)  # another process may have finished the run since
                if summary is None:
                    contexts.enter_context(log_to(folder / LOG, record.overrides, messages))
        if (summary := ranks.broadcast(summary)) is not None:
            return summary
        contexts.enter_context(restored_generators(simulation.device))
        if observers is None:
            observers = chosen_observers(experiment, parallel_jobs) if ranks.is_leader else ()
        return Session(simulation, observers).run()


def earlier_summary(experiment: Experiment) -> dict[str, Any] | None:
    """The summary of an experiment's run if it is finished, otherwise None.

    Raises:
        InputError: a file of the run is damaged, or it was finished with other thresholds or initial weights.
    """
    folder = experiment.folder
    summary = finished(folder)
    if summary is None:
        return None
    for what, recorded, fingerprint in (
        ("thresholds (the file at appeal.path", "appeal", experiment.appeal.fingerprint()),
        ("initial weights (the run at initial.path", "initial", experiment.initial.fingerprint(experiment.seed)),
    ):
        if summary.get(recorded, "") != fingerprint:
            raise InputError(
                f"{folder}: was finished with other {what} has changed since); restore it, choose another name or "
                "output_dir, or start over with overwrite=true"
            )
    return summary


def build_simulation(
    experiment: Experiment, parallel_jobs: int, ranks: Ranks, federation: Federation | None
) -> Simulation:
    """The simulation of an experiment, with its files in the experiment's folder.

    The first rank of each machine builds it before the others, because it may fetch or convert the data for them.
    """
    cache = Path(experiment.output_dir)
    client_states = experiment.folder / CLIENT_STATES if ranks.is_leader else None
    simulation = None
    for first_of_machine in (True, False):
        with ranks.raise_on_all():
            if first_of_machine is (ranks.local == 0):
                simulation = Simulation(experiment, parallel_jobs, cache, client_states, federation, ranks)
    assert simulation is not None
    check_weights_of_run(experiment, simulation.network.layout)
    ranks.require_same("data with the fingerprint", simulation.dataset.fingerprint)
    ranks.require_same("initial weights with the fingerprint", experiment.initial.fingerprint(experiment.seed))
    ranks.require_same("frozen parameters with the fingerprint", simulation.network.frozen_fingerprint)
    return simulation
