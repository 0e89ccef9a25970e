"""The simulation: broadcast, local work, upload, server update, evaluate.

It writes no files except a cache, and displays nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import torch

from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.evaluation.client_groups import SEEN
from fedrun.evaluation.client_results import Metrics
from fedrun.evaluation.evaluator import Evaluator
from fedrun.evaluation.thresholds import client_thresholds
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.distributed_cohort import DistributedCohort
from fedrun.execution.executor_choice import EXECUTORS, supported_executor
from fedrun.execution.features import compute_features
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.execution.vector_store import VectorStore
from fedrun.execution.vectorized import Vectorized
from fedrun.experiment.aggregation.base import NextStep, Uploads
from fedrun.experiment.appeal.base import Thresholds
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.participation.base import Candidates
from fedrun.experiment.state import State, Totals
from fedrun.models.cuda_graphs import CudaGraphs
from fedrun.models.flat_network import FlatNetwork
from fedrun.simulation.active_phase import ActivePhase
from fedrun.simulation.costs import Costs
from fedrun.simulation.finite_checks import check_models, check_uploads
from fedrun.simulation.first_phase import first_phase
from fedrun.simulation.participation_history import copied, initial_history, next_history
from fedrun.simulation.prepared_federation import prepare_federation
from fedrun.simulation.round_runner import RoundResult, RoundRunner
from fedrun.simulation.round_work import RoundWork
from fedrun.simulation.selection import ParticipationCounts, checked_clients, checked_participants, select_cohort
from fedrun.simulation.server_step import aggregate, empty_round, without_displacement
from fedrun.simulation.upload_pipeline import upload_pipeline
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import ServerState
from fedrun.strategies.server_contract import check_start
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError
from fedrun.system.randomness import restored_generators
from fedrun.uploads.transform_contract import check_metrics

log = logging.getLogger(__name__)

RoundProgress = Callable[[int, int], None]
"""Called with the number of finished clients of a round and the number of its participants."""


class Simulation:
    """A federation and the phases of a run, ready to run round by round.

    Everything random is a function of the seed and the round, so :meth:`advance` is a pure function of the state: the
    same state gives the same next state, in this process or another. Global generators of random numbers keep their
    states. ``hardware`` is applied to the process: PyTorch's number of threads, and on a GPU deterministic kernels.

    Args:
        experiment: what to run.
        parallel_jobs: how many runs share this machine's cores.
        cache: folder of values that several runs can use: ``thresholds`` of the same clients, and ``noise`` of the same
            privacy settings; None: no cache.
        memory_file: holds those client states that do not fit into main memory; None: a temporary file.
        federation: who holds which samples; None: it is built from the experiment's configuration.
        ranks: the processes that share the run. Each has a simulation like this one, and all must call its methods in
            the same order. States and metrics are the same on all ranks, except for the client states.

    Attributes:
        federation: who holds which samples.
        store: holds the client states.
        devices: the clients' devices, by which virtual time is measured; None: it is not measured.

    Raises:
        InputError: the experiment, its data or its hardware cannot be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        parallel_jobs: int = 1,
        cache: Path | None = None,
        memory_file: Path | None = None,
        federation: Federation | None = None,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        if not isinstance(experiment, Experiment):
            raise InputError(
                f"fedrun.Simulation: {type(experiment).__name__}; allowed: what fedrun.build_experiment returns"
            )
        self.experiment = experiment
        self.ranks = ranks
        self.device = experiment.hardware.prepare(parallel_jobs, ranks)
        self.federation = prepare_federation(experiment) if federation is None else federation
        self.devices = experiment.clock.devices(len(self.federation.train), experiment.seed)
        self._cache = cache
        phase = first_phase(experiment, self.federation, self.device)
        active = self._activated(phase)
        if self.device.type == "cpu":
            together = phase.cohort_size if isinstance(active.runner.executor, Vectorized) else 1
            experiment.hardware.fit_threads(together * RoundWork.of(phase).step)
        longest = max([phase.network.layout.size, *active.runner.executor.context.state_lengths.values()])
        self.store = VectorStore(longest, experiment.hardware.client_memory_gb * 2**30, memory_file)
        self._phases = [active]
        if experiment.appeal.known and not experiment.appeal.trained:
            _ = self.thresholds  # a file that cannot be used is rejected before anything is written

    @property
    def dataset(self) -> Dataset:
        """The dataset of the first phase."""
        return self.federation.dataset

    @property
    def network(self) -> FlatNetwork:
        """The network of the first phase."""
        return self._phases[0].phase.network

    @cached_property
    def thresholds(self) -> dict[str, Thresholds]:
        """The threshold ρ_k of each client, by group; empty if appeal is not measured."""
        cache = None if self._cache is None else self._cache / "thresholds"
        with restored_generators(self.device):
            return client_thresholds(self.experiment, self._phases[0].phase, cache, self.ranks)

    def _activated(self, phase: Phase, models: tuple[torch.Tensor, ...] = ()) -> ActivePhase:
        experiment, attackers = self.experiment, phase.federation.attackers
        if experiment.hardware.cuda_graphs and phase.samples.device.type == "cuda":
            phase.network.cuda_graphs = CudaGraphs(phase.samples.device)
        noise_folder = None if self._cache is None else self._cache / "noise"
        pipeline, mechanism = upload_pipeline(experiment, phase, noise_folder)
        context = replace(
            ExecutionContext.of(phase, experiment.evaluation.client_means),
            idle_training=phase.server.idle_training,
            local=mechanism.local(phase.local),
            pipeline=pipeline,
            noised_steps=mechanism.noised_steps,
            attack=experiment.attack if attackers else None,
            attackers=attackers,
            thresholds=lambda: self.thresholds[SEEN].train,
            initial_model=phase.initial_model() if "initial_model" in phase.client.wants else None,
        )
        requested = experiment.hardware.executor
        executor = supported_executor(requested, context, phase.cohort_size // self.ranks.count)
        if requested not in (None, executor.name):
            reason = EXECUTORS[requested].unsupported(context)
            log.warning("hardware.executor=%s does not support %s; using %s", requested, reason, executor.name)
        distributed = DistributedCohort(executor, self.ranks, bool(context.state_lengths))
        runner = RoundRunner(executor, distributed, phase, experiment.aggregation)
        evaluator = Evaluator(experiment, phase, lambda: self.thresholds, distributed)
        counts = ParticipationCounts(phase.seed, len(phase.federation.train), phase.cohort_size)
        return ActivePhase(phase, runner, evaluator, mechanism, counts, Costs(phase, executor, self.devices), models)

    def _active(self, state: State) -> ActivePhase:
        """The phase of a state. A later phase is built when it is first needed, by all ranks together."""
        for number, models in enumerate(state.finished, start=1):
            if number == len(self._phases) or self._phases[number].models is not models:
                del self._phases[number:]
                batch_size = self.experiment.evaluation.batch_size
                features = partial(compute_features, batch_size=batch_size, ranks=self.ranks)
                before = self._phases[-1].phase
                phase = self.experiment.strategy.afterwards().next_phase(before, models, features)
                self._phases.append(self._activated(phase, models))
        return self._phases[len(state.finished)]

    def phase(self, state: State) -> Phase:
        """The phase of a state."""
        return self._active(state).phase

    def evaluator(self, state: State) -> Evaluator:
        """Evaluates the models of a state's phase."""
        return self._active(state).evaluator

    def round_runner(self, state: State) -> RoundRunner:
        """Runs the local work of the next round."""
        return self._active(state).runner

    def initial(self) -> State:
        """The state before the first round."""
        return self._begun(0, Totals(), ())

    def next_phase(self, state: State) -> State:
        """The state with which the next phase begins, given the state with which the current phase ends."""
        finished = (*state.finished, tuple(server.model for server in state.models))
        return self._begun(state.round, state.totals, finished)

    def _begun(self, round: int, totals: Totals, finished: tuple[tuple[torch.Tensor, ...], ...]) -> State:
        """The state with which a phase begins."""
        state = State(round, (), ClientStates(store=self.store.keep), totals, None, finished)
        active = self._active(state)
        clustering, context = active.phase.clustering, active.runner.executor.context
        membership = self.ranks.broadcast(clustering.before(context))  # rounding may differ between ranks
        count = clustering.initial_models if membership is None else membership.shape[1]
        models = tuple(self._initial_server(active, number) for number in range(count))
        return replace(
            state,
            models=models,
            totals=totals + active.costs.of_start(),
            membership=membership,
            last_mean=models[0].model if self.experiment.evaluation.client_means else None,
            history=initial_history(self.experiment.participation_rule, len(active.phase.federation.train)),
        )

    def _initial_server(self, active: ActivePhase, number: int) -> ServerState:
        """A model before the phase's first round, with the tensors of the strategy and the transforms."""
        phase = active.phase
        state = phase.initial_server(number)
        check_start(phase.server, state, len(phase.network.vector))
        return replace(state, transforms=active.runner.executor.context.pipeline.slots())

    def uploads(self, state: State) -> Uploads:
        """The uploads that the server aggregates in the next round."""
        active, rule = self._active(state), self.experiment.participation_rule
        return self.experiment.aggregation.uploads(
            NextStep(
                seed=active.phase.seed,
                round=state.round,
                time=state.totals.virtual_seconds,
                size=active.phase.cohort_size,
                draw=lambda size: select_cohort(state, active.phase, rule, self._candidates(state, state.round, size)),
                seconds=lambda: active.costs.usual_seconds,
                training=state.training,
            )
        )

    def _candidates(self, state: State, round: int, size: int) -> Candidates:
        """What the choice of a round's participants may depend on."""
        active = self._active(state)
        phase = active.phase

        def thresholds() -> torch.Tensor:
            if not self.experiment.appeal.known:
                rule = self.experiment.chosen("participation")
                raise InputError(f"{rule} needs every client's threshold; choose appeal=warmup")
            return self.thresholds[SEEN].train.clone()

        def losses(clients: torch.Tensor) -> torch.Tensor:
            known = checked_clients(self.experiment.participation_rule, clients, len(phase.federation.train))
            return active.evaluator.training_losses(state, known)

        return Candidates(
            seed=phase.seed,
            round=round,
            rounds=phase.end,
            size=size,
            samples=phase.federation.train.sizes.clone(),  # a user's rule could change tensors in place
            losses=losses,
            thresholds=thresholds,
            history=copied(state),
        )

    def advance(self, state: State, progress: RoundProgress = lambda done, cohort: None) -> tuple[State, Metrics]:
        """One round.

        Args:
            state: before the round.
            progress: called with the number of clients done and the cohort's.

        Returns:
            The state after the round, and metrics: ``train/*``, ``server/*``, ``clients/*``, ``clusters/*``, ``time/*``
            in seconds.

        Raises:
            RunError: a model is not finite after the server's step, or no client's upload was finite. With user-level
                privacy, where such uploads count as zero, the latter only if the global model had overflowed.
        """
        with restored_generators(self.device):
            return self._advanced(state, progress)

    def _advanced(self, state: State, progress: RoundProgress) -> tuple[State, Metrics]:
        began = time.perf_counter()
        phase = self.phase(state)
        if state.round == phase.end and not phase.is_last:
            state = self.next_phase(state)
        active, uploads = self._active(state), self.uploads(state)
        phase, rule = active.phase, self.experiment.participation_rule
        result = self._local_work(state, active, uploads, progress)
        after, metrics = state, Metrics()
        if len(uploads.clients) or self.experiment.privacy.sees_sums_only:
            after, metrics = self._server_step(state, active, result)
        metrics = {**uploads.metrics, **metrics, "time/round_s": time.perf_counter() - began}
        costs, late = active.costs.of_round(uploads.clients, result), active.costs.of_late(state.server, uploads.late)
        totals = state.totals + costs.totals + late
        if uploads.time is not None:
            totals = replace(totals, virtual_seconds=uploads.time + active.costs.server_seconds)
        training = uploads.training
        if training.starts:
            training = training.with_received(state.training, state.round, phase.broadcast(state.server))
        history = next_history(rule, state, phase, uploads.clients, result, costs.seconds)
        return replace(after, round=state.round + 1, totals=totals, training=training, history=history), metrics

    def _local_work(self, state: State, active: ActivePhase, uploads: Uploads, progress: RoundProgress) -> RoundResult:
        """The local work of a round's cohort, which may be empty, and of its idle clients."""
        phase, cohort, privacy = active.phase, uploads.clients, self.experiment.privacy
        if "threshold" in phase.client.wants:
            _ = self.thresholds  # by all ranks together, also those that train no client of this round
        result = empty_round(state)
        if len(cohort):
            result = active.runner.run(state, cohort, lambda done: progress(done, len(cohort)), uploads.started)
            check_uploads(state.round, cohort, result, privacy)
        if not result.accepted and privacy.sees_sums_only:
            result = without_displacement(phase, result)
        if phase.server.idle_training is not None and state.round + 1 < phase.end:
            return replace(result, client_states=self._idle(state, active.runner, result))
        return result

    def _server_step(self, state: State, active: ActivePhase, result: RoundResult) -> tuple[State, Metrics]:
        """The state with the models after a round's server steps, and the metrics of training and of these steps."""
        began = time.perf_counter()
        phase, privacy = active.phase, self.experiment.privacy
        # a copy, because the server step may overwrite the means
        last_mean = None if state.last_mean is None else result.updates[0].mean[MODEL].clone()
        context = active.runner.executor.context
        models, steps = aggregate(phase, state, result, context, sums_only=privacy.sees_sums_only)
        changed = [model for model, before in zip(models, result.models, strict=True) if model is not before]
        check_models(state.round, changed, privacy)
        metrics = {
            "train/loss": result.loss,
            f"train/{phase.samples.task.score}": result.score,
            **steps,
            "clients/excluded": float(len(result.excluded)),
            "time/server_s": time.perf_counter() - began,
        }
        if phase.clustering.several:
            metrics |= {"clusters/models": float(len(models)), "clusters/trained": float(len(result.accepted))}
        after = replace(
            state,
            models=models,
            client_states=result.client_states,
            membership=result.membership,
            last_mean=last_mean,
        )
        return after, metrics

    def _idle(self, state: State, runner: RoundRunner, result: RoundResult) -> ClientStates:
        """The states after the idle training of the clients that are selected in the next round but not in this one.

        The idle training of other clients has no effect, because its result lasts for one round.
        """
        job = result.jobs[0]
        candidates = self._candidates(state, job.round + 1, runner.phase.cohort_size)
        following, _ = checked_participants(self.experiment.participation_rule, candidates)
        idle = following[~torch.isin(following, job.cohort)]
        if not len(idle):
            return result.client_states
        return runner.distributed.idle(CohortJob(idle, job.round, job.received, result.client_states))

    def test(self, state: State, target: float | None = None) -> Metrics:
        """``test/*`` (or ``validation/*``) on the pooled samples; where clients test on their own ``clients/*`` and
        ``unseen/*``, too; with privacy ``privacy/*``.

        Args:
            state: its models are tested.
            target: stop the test as soon as this accuracy cannot be reached; None: test on all samples.
        """
        active = self._active(state)
        with restored_generators(self.device):
            metrics = active.evaluator.metrics(state, target)
        privacy = active.mechanism.report(state.round, lambda: active.participations.after(state.round))
        check_metrics(active.mechanism, "report", privacy)
        return metrics | privacy
