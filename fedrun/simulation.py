"""The simulation: broadcast, local work, upload, server update, evaluate. No files but a cache, no display."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from fedrun.assessment import SEEN, Assessment, Metrics
from fedrun.client_memory import ClientMemory
from fedrun.errors import RunError
from fedrun.executors.base import IDLE, MOMENTUM, Executor, Task, Workplace, processed
from fedrun.executors.choice import chosen
from fedrun.executors.distributed import Distributed
from fedrun.experiment import Experiment
from fedrun.federation import Shares
from fedrun.parameters import FlatNetwork
from fedrun.population import flip
from fedrun.randomness import address
from fedrun.ranks import ALONE, Ranks
from fedrun.selection import cohort_size, select
from fedrun.state import State, Totals
from fedrun.strategies.base import MODEL, Round
from fedrun.training import Samples, repair
from fedrun.vector_store import VectorStore

log = logging.getLogger(__name__)


class Simulation:
    """A federation, a network and a strategy, ready to run round by round.

    Everything random is a function of the seed and the round, so :meth:`advance` is a pure function of the state: the
    same state gives the same next state, in this process or another.

    Args:
        experiment: what to run; checked here.
        parallel_jobs: how many runs share this machine's cores.
        cache: folder where thresholds are kept for other runs of the same clients; None: nowhere.
        memory_file: where what clients remember lies that main memory is not to hold; None: a temporary file.
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
        ranks: Ranks = ALONE,
    ) -> None:
        experiment.check()
        self.experiment = experiment
        self.ranks = ranks
        self.device = experiment.hardware.prepare(parallel_jobs, ranks)
        dataset = experiment.dataset.load()
        federation = experiment.population.populate(
            experiment.partition.split(dataset, experiment.seed), experiment.seed
        )
        attackers = experiment.attack.attackers(len(federation.train), experiment.seed)
        federation = replace(federation, attackers=frozenset(attackers.tolist()))
        if experiment.attack.flips_labels and len(attackers):
            parts = [federation.train[int(client)].numpy() for client in attackers]
            targets = flip(federation.dataset.targets, Shares.of(parts), dataset.spec.classes)
            federation = replace(federation, dataset=replace(federation.dataset, targets=targets))
        self.federation = federation.pooled() if experiment.strategy.client.pools else federation
        self.dataset = self.federation.dataset
        asked = 1 if experiment.strategy.client.pools else experiment.clients_per_round
        self.cohort_size = cohort_size(asked, len(self.federation.train))
        experiment.model.check(self.dataset.spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(address(experiment.seed, "model"))
            network = experiment.model.build(self.dataset.spec)
        self.network = FlatNetwork(network, self.device)
        self.samples = Samples.of(self.dataset, self.device)
        self._initial_model = self.network.vector.clone()
        self.store = VectorStore(len(self._initial_model), experiment.hardware.client_memory_gb * 2**30, memory_file)
        self.assessment = Assessment(
            experiment, self.federation, self.network, self.samples, self._initial_model, cache, ranks
        )

    @cached_property
    def _executor(self) -> Executor | Distributed:
        experiment, half = self.experiment, self.experiment.strategy.client
        executor = chosen(
            experiment.hardware.executor,
            Workplace(
                network=self.network,
                samples=self.samples,
                clients=self.federation.train,
                client=half,
                local=experiment.local,
                seed=experiment.seed,
                attack=experiment.attack if self.federation.attackers else None,
                attackers=self.federation.attackers,
                thresholds=self.assessment.thresholds[SEEN].train.to(self.device) if half.knows_threshold else None,
            ),
        )
        return executor if self.ranks.count == 1 else Distributed(executor, self.ranks, bool(self._remembered))

    @property
    def homes(self) -> torch.Tensor | None:
        """On which rank every client is trained and what it remembers lies, int64 ``[N]``; None where each of the ranks
        (there may be only one) can train any client.
        """
        if self.ranks.count == 1:
            return None
        return self._executor.homes if isinstance(self._executor, Distributed) else None

    @property
    def _remembered(self) -> frozenset[str]:
        """What clients remember from round to round."""
        client, server = self.experiment.strategy.client, self.experiment.strategy.server
        names = client.remembers | client.remembers_models
        if server.fusion is not None:
            names |= {IDLE}
        if client.keeps_momentum and self.experiment.local.momentum:
            names |= {MOMENTUM}
        return names

    def initial(self) -> State:
        """The state before the first round."""
        layout, server = self.network.layout, self.experiment.strategy.server
        lengths = dict.fromkeys(self.experiment.strategy.client.remembers_models, layout.size)
        names = tuple(sorted(self._remembered))
        memory = ClientMemory(names, layout.trainable, lengths=lengths, store=self.store.keep)
        state = server.init(self._initial_model.clone(), layout, len(self.federation.train))
        return State(0, state, memory, Totals())

    def cohort(self, state: State) -> tuple[torch.Tensor, Metrics]:
        """The clients that take part in the next round, int64 ``[C]`` (C = 0 if nobody is willing), and how many
        there were to choose from.
        """
        experiment, clients = self.experiment, len(self.federation.train)
        participation = experiment.participation
        if not participation.by_appeal:
            return select(experiment.seed, state.round, clients, self.cohort_size), {}
        willing = torch.ones(clients, dtype=torch.bool)
        if not participation.mandatory(state.round, experiment.rounds):
            willing = self.assessment.training_losses(state) < self.assessment.thresholds[SEEN].train
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

    def advance(self, state: State, progress: Callable[[int], None] = lambda done: None) -> tuple[State, Metrics]:
        """One round.

        Args:
            state: before the round.
            progress: called with the number of clients done.

        Returns:
            The state after the round, and metrics: ``train/*``, ``server/*``, ``clients/*``, ``time/*`` in seconds.

        Raises:
            RunError: no client's upload was finite.
        """
        began = time.perf_counter()
        experiment, half = self.experiment, self.experiment.strategy.server
        cohort, metrics = self.cohort(state)
        if not len(cohort):
            return replace(state, round=state.round + 1), metrics
        wanted = experiment.strategy.client.needs | {MODEL}
        received = {name: vector for name, vector in half.broadcast(state.server).items() if name in wanted}
        task = Task(
            cohort=cohort,
            round=state.round,
            received=received,
            memory=state.memory,
            steps=half.steps(state.server, cohort, self._executor.usual_steps[cohort]),
            fusion=self._fusion(state.round),
        )
        update, memory = self._executor.run(half, state.server, task, progress)
        if update.excluded:
            log.warning("round %d: left out, not finite: clients %s", state.round + 1, list(update.excluded))
        if not len(update.clients):
            raise RunError(
                f"round {state.round + 1}: no client's upload was finite (clients {cohort.tolist()}): local training "
                "diverged; a smaller local.lr is the usual cure"
            )
        if half.fusion is not None and state.round + 1 < experiment.rounds:
            memory = self._idle(task, memory)
        trained = time.perf_counter()
        layout = self.network.layout
        round = Round(state.round, experiment.rounds, len(self.federation.train), layout, experiment.seed)
        server, step = half.aggregate(state.server, update, round)
        if experiment.local.repair_nonfinite:
            repair(server.model[: layout.trainable])
        ended = time.perf_counter()
        resting = len(self.federation.train) - len(cohort) if half.fusion is not None else 0
        down = sum(vector.numel() for vector in received.values()) * (len(cohort) + resting)
        up = sum(vector.numel() for vector in update.mean.values()) * len(cohort)
        if not experiment.strategy.client.communicates:
            down = up = 0
        totals = Totals(
            params_up=state.totals.params_up + up,
            params_down=state.totals.params_down + down,
            client_samples=state.totals.client_samples
            + update.client_samples
            + (self._idle_samples(cohort) if resting else 0),
            forward_samples=state.totals.forward_samples + update.forward_samples,
            excluded=state.totals.excluded + len(update.excluded),
        )
        metrics |= {
            "train/loss": update.loss,
            "train/accuracy": update.accuracy,
            **{f"server/{name}": value for name, value in step.items()},
            "clients/excluded": float(len(update.excluded)),
            "time/round_s": ended - began,
            "time/server_s": ended - trained,
        }
        return State(state.round + 1, server, memory, totals), metrics

    def _fusion(self, round: int) -> float:
        """α η_t / η_{t−1}: by how much of its idle displacement a newly selected client's start is moved."""
        share, local = self.experiment.strategy.server.fusion, self.experiment.local
        return 0.0 if share is None or round == 0 else share * local.rate(round) / local.rate(round - 1)

    def _idle(self, task: Task, memory: ClientMemory) -> ClientMemory:
        """The memory after those clients have trained that are selected in the next round and were not in this one.

        The others' idle training cannot matter: a displacement lasts for one round.
        """
        following = select(self.experiment.seed, task.round + 1, len(self.federation.train), self.cohort_size)
        idle = following[~torch.isin(following, task.cohort)]
        if not len(idle):
            return memory
        return self._executor.idle(Task(idle, task.round, task.received, memory))

    def _idle_samples(self, cohort: torch.Tensor) -> int:
        """Samples that all clients outside of the cohort process, were each to train."""
        resting = torch.ones(len(self.federation.train), dtype=torch.bool)
        resting[cohort] = False
        sizes, count = torch.unique(self.federation.train.sizes[resting], return_counts=True)
        local = self.experiment.local
        return sum(processed(size, local) * many for size, many in zip(sizes.tolist(), count.tolist(), strict=True))

    def test(self, state: State) -> Metrics:
        """``test/*`` over the pooled test samples, and ``clients/*``, ``unseen/*`` where clients test on their own."""
        return self.assessment.metrics(state)
