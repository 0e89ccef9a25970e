"""One process's part of a run: resume, run the missing rounds, write the results."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedrun.data.targets import Target, check_recorded
from fedrun.evaluation.client_results import Metrics
from fedrun.execution.distributed_client_state import DistributedClientStates
from fedrun.execution.ranks import StoppedError
from fedrun.experiment.clock.base import VIRTUAL_SECONDS
from fedrun.experiment.observer import Observer, Row, RunInfo
from fedrun.experiment.state import State
from fedrun.models.saved_tensors import MODEL_FILE
from fedrun.runs import checkpoint as checkpoints
from fedrun.runs.checkpoint import Checkpoint, Identity
from fedrun.runs.client_table import client_table, save_clients
from fedrun.runs.decisions import decisions
from fedrun.runs.display import wording
from fedrun.runs.display.federation import plot_labels, summarise
from fedrun.runs.display.panels import plot_curves
from fedrun.runs.folder import (
    CHECKPOINT,
    CLIENTS,
    CONFIG,
    CURVES,
    FEDERATION,
    METRICS,
    OVERRIDES,
    SUMMARY,
    finish,
)
from fedrun.runs.metrics_file import MetricsFile, Written, read_rows
from fedrun.runs.observers import Observers
from fedrun.runs.saved_model import save_model
from fedrun.runs.summary import hits, summarise_run
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client_state import ClientStates
from fedrun.system.atomic_file import atomic_write
from fedrun.system.source_commit import loaded_commit
from fedrun.system.writing import writing
from fedrun.system.yaml_file import yaml_text

log = logging.getLogger(__name__)


class Session:
    """One process's part of a run. The leader of the ranks has locked the run's folder."""

    def __init__(self, simulation: Simulation, observers: Sequence[Observer]) -> None:
        self.experiment = experiment = simulation.experiment
        self.record = experiment.record
        self.simulation = simulation
        self.ranks = simulation.ranks
        self.folder = self.record.folder
        self.observers = Observers(observers)
        data, appeal = simulation.dataset.fingerprint, experiment.appeal.fingerprint()
        frozen, initial = simulation.network.frozen_fingerprint, experiment.initial.fingerprint(experiment.seed)
        self.identity = Identity(self.record.hash, experiment.seed, data, appeal, frozen, initial)
        self.decisions: Mapping[str, str] = {}
        self._metrics: MetricsFile | None = None  # of the leader
        self._saved: Checkpoint | None = None
        self._distributed: DistributedClientStates | None = None

    def run(self) -> dict[str, Any]:
        """Start or resume, run the missing rounds and write the results; return the summary."""
        last, rows = self.resumed()
        try:
            _ = self.simulation.phase(last.state)  # all ranks together compute the phase in which a run is resumed
            with self.ranks.raise_on_all():
                if self.ranks.is_leader:
                    if rows:  # for the log file; the display shows it
                        log.debug("resumed   after round %d of %d", last.state.round, self.experiment.rounds)
                    self.describe()
            self.observers.notify(lambda observer: observer.on_start(self.info(last, rows)))  # with rows of its own
            last = self.rounds(last, rows)
            summary = self.finish(last, rows)
            self.observers.notify(lambda observer: observer.on_end(summary))
            return summary
        except BaseException:
            kept = (self._saved or last).state.round
            self.observers.notify(lambda observer: observer.on_stop(kept))
            raise
        finally:
            self.observers.close()
            if self._metrics is not None:
                self._metrics.close()

    def resumed(self) -> tuple[Checkpoint, list[Row]]:
        """The checkpoint of an interrupted run, or the beginning of a new one, and the rows of its metrics file."""
        initial = self.simulation.initial()
        self.decisions = decisions(self.experiment, self.simulation, initial)  # those of the first session, too
        last = Checkpoint(initial, Written(), uuid.uuid4().hex[:12], 0.0, self.ranks.count)
        rows = list[Row]()
        path = self.folder / CHECKPOINT
        with self.ranks.raise_on_all():
            if self.ranks.is_leader:
                if path.exists():
                    last = checkpoints.load(path, self.identity, last.state, self.simulation.store)
                with writing(self.folder / METRICS):
                    self._metrics = MetricsFile(self.folder / METRICS, last.metrics)
                rows = list(read_rows(self.folder / METRICS))
        self._saved = last
        if self.ranks.count == 1:
            return last, rows
        client_states = last.state.client_states
        state, rows = self.ranks.broadcast((replace(last.state, client_states=ClientStates()).to("cpu"), rows))
        state = state.to(self.simulation.device)
        client_to_rank = self.simulation.round_runner(state).distributed.client_to_rank
        if client_to_rank is not None:
            self._distributed = DistributedClientStates(self.ranks, client_to_rank)
            client_states = self._distributed.scatter(client_states)
        return replace(last, state=replace(state, client_states=client_states)), rows

    def describe(self) -> None:
        """Write the configuration to the folder, and a summary of the federation and the decisions to the log."""
        config = self.folder / CONFIG
        with writing(config):
            config.parent.mkdir(exist_ok=True)
            for path, content in ((config, self.record.config), (self.folder / OVERRIDES, list(self.record.overrides))):
                with atomic_write(path) as file:
                    file.write(yaml_text(content).encode())
        for line in summarise(self.simulation.federation).splitlines():
            log.info(line)
        for name, words in self.decisions.items():
            log.debug("%-9s %s", name, words)  # for the log file; the display shows them

    def rounds(self, last: Checkpoint, rows: list[Row]) -> Checkpoint:
        """Run the missing rounds; return the checkpoint after the last one.

        ``last`` is always a state together with the content of the metrics file at that state. So a consistent pair is
        saved, whatever ends the loop.
        """
        experiment, simulation = self.experiment, self.simulation
        earlier_seconds, began, stop_signal = last.seconds, time.perf_counter(), 0

        def reached(state: State) -> Checkpoint:
            seconds = earlier_seconds + time.perf_counter() - began
            written = Written() if self._metrics is None else self._metrics.written
            return Checkpoint(state, written, last.tracking_id, seconds, self.ranks.count)

        saved_at = time.monotonic()
        try:
            if not rows:
                self.evaluate(last.state, {}, rows)
                last = reached(last.state)
            while not stop_signal and not self.over(last.state, rows):
                round = last.state.round + 1
                state, round_metrics = simulation.advance(last.state, self.client_progress(round))
                if round % experiment.evaluation.every == 0 or round == experiment.rounds:
                    self.evaluate(state, round_metrics, rows)
                last = reached(state)
                due = time.monotonic() - saved_at >= experiment.checkpoint_seconds
                due, stop_signal = self.ranks.after_round(due)
                if due and not stop_signal:
                    self.save(last)
                    saved_at = time.monotonic()
        except BaseException:
            # With distributed client states, saving needs the other ranks, which may have ended or be at another step.
            if self._distributed is None:
                self.save(last)
            raise
        self.save(last)
        if stop_signal and not self.over(last.state, rows):
            raise StoppedError(stop_signal, last.state.round)
        return last

    def evaluate(self, state: State, round_metrics: Metrics, rows: list[Row]) -> None:
        """Append the row of a round to the rows so far and to the metrics file, and show it to the observers."""
        row = self.row(state, round_metrics, rows)
        if len(rows) == 1:  # the first round: before it there are no metrics of training
            check_recorded(self.targets, row)
        if self._metrics is not None:
            with writing(self.folder / METRICS):
                row = self._metrics.append(row)
        rows.append(row)
        self.observers.notify(lambda observer: observer.on_row(dict(row)))  # its own, which it may change

    def client_progress(self, round: int) -> Callable[[int, int], None]:
        """The function that a simulation calls when a client of a round has finished."""
        return lambda done, cohort: self.observers.notify(lambda observer: observer.on_client(round, done, cohort))

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint. If the ranks hold the client states, all of them must call this."""
        if self._distributed is not None:
            client_states = self._distributed.gather(checkpoint.state.client_states)
            checkpoint = replace(checkpoint, state=replace(checkpoint.state, client_states=client_states))
        if self._metrics is None:
            return
        with writing(self.folder / METRICS):
            self._metrics.sync()
        with writing(self.folder / CHECKPOINT):
            checkpoints.save(self.folder / CHECKPOINT, checkpoint, self.identity, self.simulation.store)
        self._saved = checkpoint  # the store must not reuse the slots that the checkpoint names

    def over(self, state: State, rows: Sequence[Row]) -> bool:
        """Whether the run is complete."""
        if state.round >= self.experiment.rounds:
            return True
        return self.experiment.stop_at_targets and None not in hits(rows, self.targets).values()

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets whose first round is reported; none on validation samples, as targets are of test samples."""
        tested = self.experiment.validation.evaluation_split == "test"
        return tuple(map(Target.of, self.experiment.targets)) if tested else ()

    def row(self, state: State, round_metrics: Metrics, earlier: Sequence[Row]) -> Row:
        """The metrics and costs of an evaluated round."""
        began = time.perf_counter()
        test_metrics = self.simulation.test(state, self.target(state, earlier))
        costs = {f"cost/{name}": value for name, value in asdict(state.totals).items() if name != "virtual_seconds"}
        if self.simulation.devices is not None:
            costs[VIRTUAL_SECONDS] = state.totals.virtual_seconds
        return {
            "round": state.round,
            **test_metrics,
            **round_metrics,
            **costs,
            "time/eval_s": time.perf_counter() - began,
        }

    def target(self, state: State, earlier: Sequence[Row]) -> float | None:
        """The accuracy at which the evaluation of a round may end early; None: it tests all samples."""
        evaluation = self.experiment.evaluation
        full = evaluation.full_every is not None and state.round and state.round % evaluation.full_every == 0
        if not evaluation.adaptive or full or state.round == self.experiment.rounds:
            return None
        if not state.round:
            return math.inf  # the initial model reaches no target
        rounds = hits(earlier, self.targets)
        missing = [target.value for target in self.targets if rounds[target.name] is None]
        return min(missing, default=math.inf)

    def finish(self, last: Checkpoint, rows: Sequence[Row]) -> dict[str, Any]:
        """Write the results of a complete run, its summary last; return the summary."""
        state = last.state
        clients, federation, model, curves = (self.folder / name for name in (CLIENTS, FEDERATION, MODEL_FILE, CURVES))
        table = client_table(self.simulation, state)
        if not self.ranks.is_leader:
            return self.ranks.broadcast({})
        with writing(clients):
            save_clients(table, clients)
        with writing(federation):  # at the end, because drawing takes longer than starting
            plot_labels(self.simulation.federation, federation)
        with writing(model):
            save_model(self.simulation.phase(state), state, model)
        with writing(curves):
            plot_curves({self.record.title: [rows]}, curves, self.targets)
        summary = summarise_run(self.simulation, self.identity, last, rows, self.targets, self.decisions)
        if (reported := summary["reported"]) is not None:
            log.debug("reported  %s %s", wording.name(reported), wording.value(reported, summary["final"][reported]))
        with writing(self.folder / SUMMARY):
            finish(self.folder, summary)
        return self.ranks.broadcast(summary)

    def info(self, last: Checkpoint, rows: Sequence[Row]) -> RunInfo:
        """The description of the run for its observers."""
        return RunInfo(
            folder=self.folder,
            title=self.record.title,
            decisions=self.decisions,
            group=self.record.group,
            seed=self.experiment.seed,
            rounds=self.experiment.rounds,
            first_rounds=self.experiment.first_rounds,
            targets=self.targets,
            config=self.record.config,
            history=tuple(map(dict, rows)),
            resumed_after=last.state.round if rows else None,
            choices=self.record.choices,
            overrides=self.record.overrides,
            sweep=self.experiment.origin.sweep,
            commit=loaded_commit(),
            tracking_id=last.tracking_id,
        )
