"""One run, from an experiment to a folder of results: resumable, repeatable, watched."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedrun.evaluation.client_results import Metrics
from fedrun.execution.choice import best
from fedrun.execution.distributed_client_state import DistributedClientStates
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks, StoppedError
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.observer import Observer, Row, RunInfo
from fedrun.experiment.state import State
from fedrun.runs import checkpoint as checkpoints
from fedrun.runs import results
from fedrun.runs.checkpoint import Checkpoint, Identity
from fedrun.runs.display.curves import plot_curves
from fedrun.runs.display.federation import plot_labels, summarise
from fedrun.runs.folder import (
    CHECKPOINT,
    CLIENT_STATES,
    METRICS,
    SUMMARY,
    clear,
    finish,
    finished,
    opened,
    require_writable,
    writing,
)
from fedrun.runs.metrics_file import MetricsFile, Written, read_rows
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import NO_STATE
from fedrun.system.errors import InputError, RunError
from fedrun.system.source_commit import loaded_commit

log = logging.getLogger(__name__)

SHOWN = {"title", "group", "seed", "dataset", "strategy", "overrides", "rounds", "cap", "final", "best", "rounds_to"}
"""What the summary of a finished run has at least."""


def run(
    experiment: Experiment,
    observers: Sequence[Observer] = (),
    parallel_jobs: int = 1,
    ranks: Ranks = SINGLE_PROCESS,
) -> dict[str, Any]:
    """Carry out a run in its folder, or take it up where it was left; return its summary.

    A finished run is not computed again (unless ``overwrite`` is set): its summary is returned as it is. An interrupted
    run continues from its checkpoint and ends with the metrics of an uninterrupted one. On Ctrl-C a checkpoint is
    written before ``KeyboardInterrupt`` goes on.

    Several ranks carry out a run together, each calling this function; only the leader touches the folder. Where one of
    them is asked to stop, all do so after the round.

    Args:
        experiment: by :func:`fedrun.experiment.experiment.build_experiment`, or changed since by ``replace``.
        observers: see :class:`fedrun.experiment.observer.Observer`; one that raises is dropped with a warning.
        parallel_jobs: how many runs share this machine's cores.
        ranks: the processes that carry out this run together.

    Raises:
        InputError: the data, the hardware or the run's folder cannot be used, or nothing identifies an object of the
            experiment.
        RunError: the run cannot go on, or ranks were asked to stop (:class:`fedrun.execution.ranks.StoppedError`).
    """
    loaded_commit()  # now, not when the summary is written: a checkout may move on while a run goes on
    record, earlier = experiment.record, None
    folder = record.folder
    ranks.require_same("the configuration", f"{record.hash}, seed {experiment.seed}")
    with ranks.together():
        if ranks.leads and not experiment.overwrite:
            earlier = finished(folder)
            if earlier is not None and not earlier.keys() >= SHOWN:
                raise InputError(f"{folder / SUMMARY}: lacks what is shown of a run; start over with overwrite=true")
            if earlier is not None and earlier.get("appeal", "") != experiment.appeal.fingerprint():
                raise InputError(
                    f"{folder}: was finished with other thresholds (the file at appeal.path has changed since); "
                    "restore it, choose another name or output_dir, or start over with overwrite=true"
                )
        if ranks.leads and earlier is None:
            require_writable(folder)
    if (summary := ranks.broadcast(earlier)) is not None:
        return summary
    simulation = simulated(experiment, folder, parallel_jobs, ranks)
    with ExitStack() as held:
        with ranks.together():
            if ranks.leads:
                for context in (opened(folder), writing(folder), logged_to(folder / "run.log", record.overrides)):
                    held.enter_context(context)
                if experiment.overwrite:
                    clear(folder)
        session = Session(experiment, simulation, observers)
        return session.run()


def simulated(experiment: Experiment, folder: Path, parallel_jobs: int, ranks: Ranks) -> Simulation:
    """The simulation of a run with this folder."""
    cache = Path(experiment.output_dir) / "thresholds"
    memory_file = folder / CLIENT_STATES if ranks.leads else None
    found = None
    for first in (True, False):  # of the ranks on a machine: it may have to fetch or convert the data for the others
        with ranks.together():
            if first is (ranks.local == 0):
                found = Simulation(experiment, parallel_jobs, cache, memory_file, ranks=ranks)
    assert found is not None
    ranks.require_same("data with the fingerprint", found.dataset.fingerprint)
    return found


@contextmanager
def logged_to(path: Path, overrides: Sequence[str]) -> Iterator[None]:
    """Append fedrun's log to a file while the block runs: what was asked for before it, after it how it ended, too.

    Args:
        path: of the file.
        overrides: what was asked for.
    """
    with writing(path):
        handler = LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("fedrun")

    def note(level: int, text: str, cause: Exception | None = None) -> None:
        told = None if cause is None else (type(cause), cause, cause.__traceback__)
        handler.handle(
            logger.makeRecord("fedrun.runs.session", level, "", 0, text, (), told)
        )  # the screen has it anyhow

    logger.addHandler(handler)
    note(logging.INFO, f"asked for: {' '.join(overrides)}")
    try:
        yield
        note(logging.INFO, "finished")
    except (InputError, RunError, OSError) as error:
        note(logging.ERROR, str(error))
        raise
    except Exception as error:
        note(logging.ERROR, "a defect", error)
        raise
    except KeyboardInterrupt:
        note(logging.INFO, "interrupted")
        raise
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):
            handler.close()


class LogFile(logging.FileHandler):
    """A log file that may fall short: where there is no room for a line of it, a result cannot be written either, and
    that is what the user is told.
    """

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        pass


class Session:
    """One process's work on a run whose folder it, or the leader of its ranks, holds."""

    def __init__(self, experiment: Experiment, simulation: Simulation, observers: Sequence[Observer]) -> None:
        self.record = experiment.record
        self.experiment = experiment
        self.simulation = simulation
        self.ranks = simulation.ranks
        self.folder = self.record.folder
        self.observers = list(observers)
        data, appeal = simulation.dataset.fingerprint, experiment.appeal.fingerprint()
        self.identity = Identity(self.record.hash, experiment.seed, data, appeal)
        self.began = time.perf_counter()
        self._saved: Checkpoint | None = None
        self._scattered: DistributedClientStates | None = None

    def run(self) -> dict[str, Any]:
        """Resume or begin, run the missing rounds, write the results; the summary."""
        stable, metrics, rows = self.resumed()
        try:
            self.tell("on_start", self.info(stable, rows))
            stable = self.rounds(stable, metrics, rows)
            summary = self.finish(stable, rows)
            self.tell("on_end", summary)
            return summary
        finally:
            self.tell("close")
            if metrics is not None:
                metrics.close()

    def resumed(self) -> tuple[Checkpoint, MetricsFile | None, list[Row]]:
        """The checkpoint of an interrupted run, or the beginning of a new one; the leader's metrics file; its rows."""
        stable, metrics = Checkpoint(self.simulation.initial(), Written(), uuid.uuid4().hex[:12], 0.0), None
        path, rows = self.folder / CHECKPOINT, list[Row]()
        with self.ranks.together():
            if self.ranks.leads:
                if path.exists():
                    stable = checkpoints.load(path, self.identity, stable.state, self.simulation.store)
                metrics = MetricsFile(self.folder / METRICS, stable.metrics)
                rows = list(read_rows(self.folder / METRICS))
                self.describe()
        self._saved = stable
        if self.ranks.count == 1:
            return stable, metrics, rows
        state, client_to_rank = stable.state, self.simulation.client_to_rank
        memory = state.memory
        if client_to_rank is not None:
            self._scattered = DistributedClientStates(self.ranks, client_to_rank, memory.keep)
            memory = self._scattered.deal(memory)
        state, rows = self.ranks.broadcast((replace(state, memory=NO_STATE).to("cpu"), rows))
        state = replace(state.to(self.simulation.device), memory=memory)
        return replace(stable, state=state), metrics, rows

    def describe(self) -> None:
        """Record the configuration, and say who holds which samples."""
        record = self.folder / ".hydra"
        with writing(record):
            record.mkdir(exist_ok=True)
            OmegaConf.save(self.record.config, record / "config.yaml")
            OmegaConf.save(list(self.record.overrides), record / "overrides.yaml")
        for line in str(summarise(self.simulation.federation)).splitlines():
            log.info(line)

    def rounds(self, stable: Checkpoint, metrics: MetricsFile | None, rows: list[Row]) -> Checkpoint:
        """Run the rounds that are missing.

        ``stable`` always is a state together with the length of the metrics file that belongs to it, so that whatever
        ends the loop, a consistent pair is saved.
        """
        experiment, simulation = self.experiment, self.simulation
        earlier, asked = stable.seconds, 0

        def reached(state: State) -> Checkpoint:
            spent = earlier + time.perf_counter() - self.began
            return Checkpoint(state, Written() if metrics is None else metrics.written, stable.tracking_id, spent)

        def record(state: State, measured: Metrics) -> None:
            row = self.row(state, measured, rows)
            if metrics is not None:
                with writing(self.folder / METRICS):
                    row = metrics.append(row)
            rows.append(row)
            self.tell("on_row", row)

        saved = time.monotonic()
        try:
            if not rows:
                record(stable.state, {})
                stable = reached(stable.state)
            while not asked and not self.over(stable.state, rows):
                number = stable.state.round + 1
                with writing(self.folder / CLIENT_STATES):
                    state, measured = simulation.advance(stable.state, partial(self.client_done, number))
                if number % experiment.evaluation.every == 0 or number == experiment.rounds:
                    record(state, measured)
                stable = reached(state)
                due, asked = self.ranks.after_round(time.monotonic() - saved >= experiment.checkpoint_seconds)
                if due and not asked:
                    self.save(stable)
                    saved = time.monotonic()
        except BaseException:
            if self._scattered is None:  # otherwise it would take the other ranks, which may be lost or elsewhere
                self.save(stable)
            raise
        self.save(stable)
        if asked and not self.over(stable.state, rows):
            raise StoppedError(asked, stable.state.round)
        return stable

    def save(self, stable: Checkpoint) -> None:
        """Replace the checkpoint; where clients' memories are scattered over ranks, all of them must call this."""
        if self._scattered is not None:
            memory = self._scattered.collect(stable.state.memory)
            stable = replace(stable, state=replace(stable.state, memory=memory))
        if not self.ranks.leads:
            return
        with writing(self.folder / CHECKPOINT):
            checkpoints.save(self.folder / CHECKPOINT, stable, self.identity, self.simulation.store)
        self._saved = stable  # the store must not reuse what the checkpoint refers to

    def over(self, state: State, rows: Sequence[Row]) -> bool:
        """Whether the run is complete."""
        if state.round >= self.experiment.rounds:
            return True
        reached = results.hits(rows, self.targets).values()
        return self.experiment.stop_at_targets and all(hit is not None for hit in reached)

    @property
    def targets(self) -> tuple[float, ...]:
        """The test accuracies whose first round is reported; none where no test sample is looked at."""
        return self.experiment.targets if self.simulation.federation.evaluation_split == "test" else ()

    def row(self, state: State, measured: Metrics, earlier: Sequence[Row]) -> Row:
        """What is recorded of an evaluated round."""
        began = time.perf_counter()
        tested = self.simulation.test(state, self.target(state, earlier))
        costs = {f"cost/{name}": value for name, value in asdict(state.totals).items()}
        return {"round": state.round, **tested, **measured, **costs, "time/eval_s": time.perf_counter() - began}

    def target(self, state: State, earlier: Sequence[Row]) -> float | None:
        """The accuracy that the evaluation of a round is to find or to rule out; None: it is to be full."""
        experiment, how = self.experiment, self.experiment.evaluation
        due = how.full_every is not None and state.round and state.round % how.full_every == 0
        if not how.adaptive or due or state.round == experiment.rounds:
            return None
        if not state.round:
            return math.inf  # the initial model reaches no target
        found = results.hits(earlier, self.targets).items()
        return min((float(target) for target, hit in found if hit is None), default=math.inf)

    def finish(self, stable: Checkpoint, rows: Sequence[Row]) -> dict[str, Any]:
        """Write the results of a complete run, its summary last."""
        state = stable.state
        clients = self.folder / "clients.parquet"
        with writing(clients):
            results.save_clients(self.simulation, state, clients)
        if not self.ranks.leads:
            return self.ranks.broadcast({})
        names = ("federation.png", "model.safetensors", "curves.png")
        federation, model, curves = (self.folder / name for name in names)
        with writing(federation):  # pictures wait until the end: drawing takes longer than starting
            plot_labels(self.simulation.federation, federation)
        with writing(model):
            results.save_model(self.simulation, state, model)
        with writing(curves):
            plot_curves({self.record.title: [rows]}, curves, self.targets)
        summary = {
            "status": "complete",
            "title": self.record.title,
            "group": self.record.group,
            "folder": str(self.folder),
            "dataset": self.record.dataset,
            "strategy": self.record.strategy,
            "overrides": list(self.record.overrides),
            "recipe": self.record.recipe,
            "seed": self.experiment.seed,
            "config_hash": self.record.hash,
            "data": self.identity.data,
            "appeal": self.identity.appeal,
            "rounds": state.round,
            "cap": self.experiment.rounds,
            "final": {name: value for name, value in rows[-1].items() if name != "round"},
            "best": results.best(rows),
            "rounds_to": results.hits(rows, self.targets),
            "seconds": stable.seconds,
            "executor": {
                "name": self.simulation.executor(state),
                "seconds_per_sample": best(state.timings),
            },
            "versions": results.versions(),
        }
        with writing(self.folder / SUMMARY):
            finish(self.folder, summary)
        return self.ranks.broadcast(summary)

    def info(self, stable: Checkpoint, rows: Sequence[Row]) -> RunInfo:
        """What observers are told when the run begins."""
        return RunInfo(
            folder=self.folder,
            title=self.record.title,
            recipe=self.record.recipe,
            group=self.record.group,
            seed=self.experiment.seed,
            rounds=self.experiment.rounds,
            targets=self.targets,
            config=self.record.config,
            history=tuple(rows),
            tracking_id=stable.tracking_id,
        )

    def client_done(self, number: int, done: int, cohort: int) -> None:
        self.tell("on_client", number, done, cohort)

    def tell(self, event: str, *arguments: object) -> None:
        """Tell every observer; one that fails is dropped."""
        for observer in list(self.observers):
            try:
                getattr(observer, event)(*arguments)
            except Exception as error:  # an observer must never harm the run, whatever it raises
                self.observers.remove(observer)
                log.warning("%s failed and is ignored from here on: %s", type(observer).__name__, error)
                if event != "close":
                    with suppress(Exception):
                        observer.close()
