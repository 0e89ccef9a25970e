"""The simulation: broadcast, local work, upload, server update, evaluate. No files but a cache, no display."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import torch

from fedrun.data.federation import Federation
from fedrun.data.samples import Samples
from fedrun.evaluation.client_results import Metrics
from fedrun.evaluation.evaluator import SEEN, Evaluator
from fedrun.execution.choice import ExecutorTimings, best, chosen, due, settled, undecided
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.distributed_cohort import DistributedCohort
from fedrun.execution.executor import Executor
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.execution.vector_store import VectorStore
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.state import State, Totals
from fedrun.models.flat_network import FlatNetwork
from fedrun.simulation.prepare import prepared
from fedrun.simulation.round_runner import RoundResult, RoundRunner
from fedrun.simulation.selection import cohort_size, select
from fedrun.strategies.client_state import IDLE, LAST, MOMENTUM, ClientStates
from fedrun.strategies.server import Round, ServerState
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError, RunError
from fedrun.system.randomness import address
from fedrun.training.sgd import repair

log = logging.getLogger(__name__)

RoundProgress = Callable[[int, int], None]
"""Told the number of clients that are done in a round, and of all that take part in it."""


class Simulation:
    """A federation, a network and a strategy, ready to run round by round.

    Everything random is a function of the seed and the round, so :meth:`advance` is a pure function of the state: the
    same state gives the same next state, in this process or another.

    Args:
        experiment: what to run; checked here.
        parallel_jobs: how many runs share this machine's cores.
        cache: folder where thresholds are kept for other runs of the same clients; None: nowhere.
        memory_file: where what clients remember lies that main memory is not to hold; None: a temporary file.
        federation: who holds which samples; None: what the experiment's recipes make of it.
        ranks: the processes that carry out the run together, each with a simulation like this one. They must call its
            methods in the same order; states and metrics are the same for all, but for what clients remember.

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
        experiment.check()
        self.experiment = experiment
        self.ranks = ranks
        self.device = experiment.hardware.prepare(parallel_jobs, ranks)
        self.federation = prepared(experiment) if federation is None else federation
        self.dataset = self.federation.dataset
        asked = 1 if experiment.strategy.client.pools else experiment.clients_per_round
        self.cohort_size = cohort_size(asked, len(self.federation.train))
        experiment.strategy.server.check_cohort(self.cohort_size)
        experiment.strategy.afterwards().check(len(self.federation.train))
        experiment.model.check(self.dataset.spec)
        self.network = self._built(0)
        if self.network.layout.classes != self.dataset.spec.classes:
            raise InputError(
                f"model={type(experiment.model).__name__}: its head tells {self.network.layout.classes} classes apart, "
                f"the dataset has {self.dataset.spec.classes}; allowed: as many"
            )
        self.samples = Samples.of(self.dataset, self.device)
        self._parallel_jobs = parallel_jobs
        self._works: dict[str, RoundRunner] = {}
        self._last_stage: tuple[tuple[torch.Tensor, ...], Simulation] | None = None
        self.store = VectorStore(self.network.layout.size, experiment.hardware.client_memory_gb * 2**30, memory_file)
        first = partial(self._initial_model, 0)
        self.evaluator = Evaluator(experiment, self.federation, self.network, self.samples, first, cache, ranks)
        if experiment.appeal.known and not experiment.appeal.trained:
            _ = self.evaluator.thresholds  # a file that cannot be used is refused before anything is written

    @cached_property
    def _context(self) -> ExecutionContext:
        """Where clients train, but for their thresholds, which take a training of their own."""
        experiment = self.experiment
        return ExecutionContext(
            network=self.network,
            samples=self.samples,
            clients=self.federation.train,
            client=experiment.strategy.client,
            local=experiment.local,
            seed=experiment.seed,
            attack=experiment.attack if self.federation.attackers else None,
            attackers=self.federation.attackers,
            stores_last_upload=self._stores_last_upload,
        )

    @cached_property
    def _asked(self) -> str:
        """The executor that was asked for, if it can do the work, or ``auto``."""
        return settled(self.experiment.hardware.executor, self._context)

    def executor(self, state: State) -> str:
        """The name of the executor that carries out the next round."""
        return due(self._asked, state.timings)

    @property
    def client_to_rank(self) -> torch.Tensor | None:
        """On which rank every client is trained and what it remembers lies, int64 ``[N]``; None where each of the ranks
        (there may be only one) can train any client.
        """
        return self._local_work(due(self._asked, ())).team.client_to_rank

    def _local_work(self, name: str) -> RoundRunner:
        """How rounds are carried out by this executor, with those of the other ranks."""
        if name not in self._works:
            strategy = self.experiment.strategy
            known = self.evaluator.thresholds[SEEN].train.to(self.device) if strategy.client.knows_threshold else None
            executor = chosen(name, replace(self._context, thresholds=known))
            team = DistributedCohort(executor, self.ranks, bool(self._remembered))
            self._works[name] = RoundRunner(
                executor, team, strategy.client, strategy.server, strategy.clusters(), self._fusion
            )
        return self._works[name]

    def _on_trial(self, state: State, seconds: float, work: RoundResult) -> ExecutorTimings:
        """The trial of executors after a round whose local work took so long; an end of it is told."""
        if not undecided(self._asked, state.timings) or not work.client_samples:
            return state.timings
        slowness = self.ranks.broadcast(seconds) / work.client_samples  # told: all ranks must decide alike
        timings = (*state.timings, (self.executor(state), slowness))
        if not undecided(self._asked, timings):
            took = ", ".join(f"{each} {1e6 * least:.3g} µs" for each, least in best(timings).items())
            fastest, following = due(self._asked, timings), state.round + 2
            log.info("hardware.executor=auto: per sample %s; %s from round %d on", took, fastest, following)
            self._works = {fastest: self._local_work(fastest)}
        return timings

    @property
    def _remembered(self) -> frozenset[str]:
        """What clients remember from round to round."""
        strategy = self.experiment.strategy
        client, server = strategy.client, strategy.server
        names = client.remembers | client.remembers_models | client.remembers_heads
        if server.fusion is not None:
            names |= {IDLE}
        if client.keeps_momentum and self.experiment.local.momentum:
            names |= {MOMENTUM}
        if self._stores_last_upload:
            names |= {LAST}
        return names

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(self._remembered))

    @property
    def _stores_last_upload(self) -> bool:
        """Whether every client is remembered by the model that it has last sent."""
        return self.experiment.strategy.clusters().stores_last_upload or self.experiment.evaluation.client_means

    def initial(self) -> State:
        """The state before the first round."""
        experiment, layout = self.experiment, self.network.layout
        client, server = experiment.strategy.client, experiment.strategy.server
        lengths = {LAST: layout.size, **dict.fromkeys(client.remembers_models, layout.size)}
        lengths |= dict.fromkeys(client.remembers_heads, layout.head_size)
        clustering, clients = experiment.strategy.clusters(), len(self.federation.train)
        memory = ClientStates(self._names, layout.trainable, lengths=lengths, store=self.store.keep)
        membership = self.ranks.broadcast(clustering.before(self._context))  # told: rounding must not part the ranks
        count = clustering.initial_models if membership is None else membership.shape[1]
        models = tuple(server.init(self._initial_model(number), layout, clients) for number in range(count))
        reported = clients * clustering.reports(layout.classes)
        return State(0, models, memory, Totals(params_up=reported), membership)

    def _initial_model(self, number: int) -> torch.Tensor:
        """The initial vector ``[P]`` of a model: built anew, so that no round has to carry it along."""
        return self._built(0 if self.experiment.strategy.clusters().same_initialisation else number).vector

    def _built(self, number: int) -> FlatNetwork:
        """The network with the initial weights of a model."""
        which = ("model", number) if number else ("model",)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(address(self.experiment.seed, *which))
            return FlatNetwork(self.experiment.model.build(self.dataset.spec), self.device)

    def cohort(self, state: State) -> tuple[torch.Tensor, Metrics]:
        """The clients that take part in the next round, int64 ``[C]`` (C = 0 if nobody is willing), and how many
        there were to choose from.
        """
        experiment, clients = self.experiment, len(self.federation.train)
        participation = experiment.participation
        if experiment.strategy.clusters().infers and state.membership is None:
            return select(experiment.seed, state.round, clients, clients), {}
        if not participation.by_appeal:
            return select(experiment.seed, state.round, clients, self.cohort_size), {}
        willing = torch.ones(clients, dtype=torch.bool)
        if not participation.mandatory(state.round, experiment.rounds):
            willing = self.evaluator.on_training(state)[0] < self.evaluator.thresholds[SEEN].train
        if participation.rule == "draw_then_drop":
            cohort = select(experiment.seed, state.round, clients, self.cohort_size)
            cohort = cohort[willing[cohort]]
        else:
            there = willing.nonzero().flatten()
            count = min(self.cohort_size, len(there))
            cohort = there[select(experiment.seed, state.round, len(there), count)] if count else there
        if len(cohort) < self.cohort_size:
            log.info("round %d: %d clients take part, %d asked for", state.round + 1, len(cohort), self.cohort_size)
        return cohort, {"clients/willing": float(willing.sum()), "clients/participants": float(len(cohort))}

    def stage(self, state: State) -> Simulation:
        """The simulation of the stage in which a state is: this one, or that of a further stage on top of its models.

        The newest further stage is kept; what it takes from the models is computed once, by all ranks together.
        """
        if not state.frozen:
            return self
        if self._last_stage is None or self._last_stage[0] is not state.frozen:
            experiment, federation = self.experiment.strategy.afterwards().derived(
                self.experiment, self.federation, self.network, self.samples, state.frozen, self.ranks
            )
            stage = Simulation(experiment, self._parallel_jobs, federation=federation, ranks=self.ranks)
            self._last_stage = (state.frozen, stage)
        return self._last_stage[1]

    def advance(self, state: State, progress: RoundProgress = lambda done, cohort: None) -> tuple[State, Metrics]:
        """One round.

        Args:
            state: before the round.
            progress: called with the number of clients done and the cohort's.

        Returns:
            The state after the round, and metrics: ``train/*``, ``server/*``, ``clients/*``, ``clusters/*``, ``time/*``
            in seconds.

        Raises:
            RunError: no client's upload was finite.
        """
        began = time.perf_counter()
        if state.round == self.experiment.first_rounds and not state.frozen:
            state = self._handed_over(state)
        after, metrics = self.stage(state)._round(state, progress, began)
        if state.frozen and not self._embeds_once:
            seen = after.totals.client_samples - state.totals.client_samples
            return replace(after, totals=after.totals.embedded(seen * len(state.frozen))), metrics
        return after, metrics

    @property
    def _embeds_once(self) -> bool:
        """Whether training samples pass the frozen encoders once, before the further stage begins."""
        return self.experiment.strategy.afterwards().embeds_once(self.dataset)

    def _handed_over(self, state: State) -> State:
        """The state with which the further stage begins: its own model; the former ones are sent to all clients."""
        frozen = tuple(server.model for server in state.models)
        layout, clients = self.network.layout, self.federation.train
        encoder = layout.size - layout.head_size
        totals = replace(state.totals, params_down=state.totals.params_down + len(clients) * len(frozen) * encoder)
        if self._embeds_once:
            totals = totals.embedded(len(frozen) * int(clients.sizes.sum()))
        handed = State(state.round, state.models, replace(state.memory, held={}), totals, None, frozen)
        return replace(handed, models=self.stage(handed).initial().models)

    def _round(self, state: State, progress: RoundProgress, began: float) -> tuple[State, Metrics]:
        """One round of this stage, which began at this time."""
        experiment = self.experiment
        state = replace(state, memory=replace(state.memory, names=self._names))  # not those of the stage before
        cohort, metrics = self.cohort(state)
        if not len(cohort):
            return replace(state, round=state.round + 1), {**metrics, "time/round_s": time.perf_counter() - began}
        runner, begun = self._local_work(self.executor(state)), time.perf_counter()
        work = runner.of(state, cohort, lambda done: progress(done, len(cohort)))
        timings = self._on_trial(state, time.perf_counter() - begun, work)
        if work.excluded:
            log.warning("round %d: left out, not finite: clients %s", state.round + 1, work.excluded)
        if not work.some:
            began_well = all(server.model.sum().isfinite() for server in work.models)
            why = (
                "local training diverged; a smaller local.lr is the usual cure"
                if began_well
                else "nor was the global model before: the server's steps diverged; see strategy.server, such as its lr"
            )
            raise RunError(f"round {state.round + 1}: no client's upload was finite (clients {cohort.tolist()}): {why}")
        memory = work.memory
        if experiment.strategy.server.fusion is not None and state.round + 1 < experiment.rounds:
            memory = self._idle(runner, work.tasks[0], memory)
        trained = time.perf_counter()
        models, steps = self._aggregated(state, work)
        if experiment.local.repair_nonfinite:
            for server in models:
                repair(server.model[: self.network.layout.trainable])
        ended = time.perf_counter()
        metrics |= {
            "train/loss": work.loss,
            "train/accuracy": work.accuracy,
            **{f"server/{name}": value for name, value in steps.items()},
            "clients/excluded": float(len(work.excluded)),
            "time/round_s": ended - began,
            "time/server_s": ended - trained,
        }
        if experiment.strategy.clusters().several:
            metrics |= {"clusters/models": float(len(models)), "clusters/trained": float(len(work.some))}
        totals = self._totals(state.totals, cohort, work, runner.executor)
        return replace(
            state,
            round=state.round + 1,
            models=models,
            memory=memory,
            totals=totals,
            membership=work.membership,
            timings=timings,
        ), metrics

    def _aggregated(self, state: State, work: RoundResult) -> tuple[tuple[ServerState, ...], dict[str, float]]:
        """The next models, and the mean metrics of the server steps. A model that nobody has trained stays."""
        experiment, server = self.experiment, self.experiment.strategy.server
        clients, layout = len(self.federation.train), self.network.layout
        nearest = None if work.membership is None else work.membership.argmax(1)[work.membership.any(1)]
        models, steps = list(work.models), []
        for number, update in enumerate(work.updates):
            if update is None or not len(update.clients):
                continue
            members = clients if nearest is None else int((nearest == number).sum())
            round = Round(state.round, experiment.first_rounds, members, layout, experiment.seed)
            models[number], step = server.aggregate(work.models[number], update, round)
            steps.append(step)
        names = steps[0].keys()
        return tuple(models), {name: sum(step[name] for step in steps) / len(steps) for name in names}

    def _totals(self, totals: Totals, cohort: torch.Tensor, work: RoundResult, executor: Executor) -> Totals:
        """The costs so far, with those of a round."""
        strategy, layout = self.experiment.strategy, self.network.layout
        kept = layout.head_size if strategy.client.keeps_head else 0
        resting = len(self.federation.train) - len(cohort) if strategy.server.fusion is not None else 0
        if strategy.clusters().downloads_all:
            down = len(cohort) * sum(self._sent(server) for server in work.models)
        else:
            down = sum((len(task.cohort) + resting) * (_numbers(task.received) - kept) for task in work.tasks)
        up = len(cohort) * (_numbers(work.some[0].mean) - kept)
        if not strategy.client.communicates:
            down = up = 0
        idle, idle_forward = 0, 0
        if resting:  # all of them train, though only those are computed that are selected next
            at_rest = torch.ones(len(self.federation.train), dtype=torch.bool)
            at_rest[cohort] = False
            idle, idle_forward = executor.usual_samples[at_rest].sum(0).tolist()
        return Totals(
            params_up=totals.params_up + up,
            params_down=totals.params_down + down,
            client_samples=totals.client_samples + work.client_samples + idle,
            forward_samples=totals.forward_samples + work.forward_samples + idle_forward,
            excluded=totals.excluded + len(work.excluded),
        )

    def _sent(self, server: ServerState) -> int:
        """How many numbers a model's broadcast has."""
        strategy = self.experiment.strategy
        wanted = strategy.client.needs | {MODEL}
        return _numbers({name: v for name, v in strategy.server.broadcast(server).items() if name in wanted})

    def _fusion(self, round: int) -> float:
        """α η_t / η_{t−1}: by how much of its idle displacement a newly selected client's start is moved."""
        # the rates' quotient is lr_decay in every round
        share = self.experiment.strategy.server.fusion
        return 0.0 if share is None or round == 0 else share * self.experiment.local.lr_decay

    def _idle(self, runner: RoundRunner, task: CohortJob, memory: ClientStates) -> ClientStates:
        """The memory after those clients have trained that are selected in the next round and were not in this one.

        The others' idle training cannot matter: a displacement lasts for one round.
        """
        following = select(self.experiment.seed, task.round + 1, len(self.federation.train), self.cohort_size)
        idle = following[~torch.isin(following, task.cohort)]
        if not len(idle):
            return memory
        return runner.team.idle(CohortJob(idle, task.round, task.received, memory))

    def test(self, state: State, target: float | None = None) -> Metrics:
        """``test/*`` (or ``validation/*``) over the pooled samples; where clients test on their own ``clients/*`` and
        ``unseen/*``, too.

        Args:
            state: whose models are tested.
            target: test only until it is clear that this accuracy was not reached; None: fully.
        """
        return self.stage(state).evaluator.metrics(state, target)


def _numbers(vectors: Vectors) -> int:
    """How many numbers some vectors have together."""
    return sum(vector.numel() for vector in vectors.values())
