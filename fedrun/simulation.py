"""The simulation: broadcast, local work, upload, server update, evaluate. No files, no display."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fedrun.client_memory import ClientMemory
from fedrun.errors import RunError
from fedrun.evaluation import SampleResults, evaluate, pooled_metrics
from fedrun.executors.base import Executor, Workplace
from fedrun.executors.in_process import InProcess
from fedrun.executors.vectorized import Vectorized
from fedrun.experiment import Experiment
from fedrun.parameters import FlatNetwork
from fedrun.randomness import address
from fedrun.selection import cohort_size, select
from fedrun.strategies.base import Round, ServerState
from fedrun.training import Samples, repair

Metrics = dict[str, float]


@dataclass(frozen=True)
class Totals:
    """Costs summed over the rounds so far.

    Attributes:
        params_up: numbers (float32) sent by clients.
        params_down: numbers sent to clients.
        client_samples: samples processed in local training, forward and backward.
        forward_samples: samples that clients processed by forward passes only.
    """

    params_up: int = 0
    params_down: int = 0
    client_samples: int = 0
    forward_samples: int = 0


@dataclass(frozen=True)
class State:
    """Where a run stands: all that the next round depends on.

    Attributes:
        round: server updates made so far.
        server: the global model and what else the server carries.
        memory: what clients remember.
        totals: costs so far.
    """

    round: int
    server: ServerState
    memory: ClientMemory
    totals: Totals


class Simulation:
    """A federation, a network and a strategy, ready to run round by round.

    Everything random is a function of the seed and the round, so :meth:`advance` is a pure function of the state: the
    same state gives the same next state, in this process or another.

    Args:
        experiment: what to run; checked here.
        parallel_jobs: how many runs share this machine's cores.

    Raises:
        InputError: the experiment, its data or its hardware cannot be used.
    """

    def __init__(self, experiment: Experiment, parallel_jobs: int = 1) -> None:
        experiment.check()
        self.experiment = experiment
        self.device = experiment.hardware.prepare(parallel_jobs)
        self.dataset = experiment.dataset.load()
        self.federation = experiment.partition.split(self.dataset, experiment.seed)
        self.cohort_size = cohort_size(experiment.clients_per_round, len(self.federation.train))
        experiment.model.check(self.dataset.spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(address(experiment.seed, "model"))
            network = experiment.model.build(self.dataset.spec)
        self.network = FlatNetwork(network, self.device)
        self.samples = Samples.of(self.dataset, self.device)
        self._initial_model = self.network.vector.clone()
        self._newest: tuple[State, torch.Tensor, SampleResults] | None = None
        executors: dict[str, type[Executor]] = {"in_process": InProcess, "vectorized": Vectorized}
        self._executor = executors[experiment.hardware.executor](
            Workplace(
                network=self.network,
                samples=self.samples,
                clients=self.federation.train,
                client=experiment.strategy.client,
                server=experiment.strategy.server,
                local=experiment.local,
                seed=experiment.seed,
            )
        )

    def initial(self) -> State:
        """The state before the first round."""
        layout = self.network.layout
        server = self.experiment.strategy.server.init(self._initial_model.clone(), layout)
        client = self.experiment.strategy.client
        names = tuple(sorted(client.remembers | client.remembers_models))
        lengths = dict.fromkeys(client.remembers_models, layout.size)
        return State(0, server, ClientMemory(names, layout.trainable, lengths=lengths), Totals())

    def advance(self, state: State, progress: Callable[[int], None] = lambda done: None) -> tuple[State, Metrics]:
        """One round.

        Args:
            state: before the round.
            progress: called with the number of clients done.

        Returns:
            The state after the round, and metrics: ``train/*``, ``server/*``, ``clients/excluded``, ``time/*`` in
            seconds.

        Raises:
            RunError: no client's upload was finite.
        """
        began = time.perf_counter()
        experiment, half = self.experiment, self.experiment.strategy.server
        cohort = select(experiment.seed, state.round, len(self.federation.train), self.cohort_size)
        received = half.broadcast(state.server)
        update, memory = self._executor.run(cohort, state.round, received, state.memory, progress)
        if not len(update.clients):
            raise RunError(
                f"round {state.round + 1}: no client's upload was finite (clients {cohort.tolist()}): local training "
                "diverged; a smaller local.lr is the usual cure"
            )
        trained = time.perf_counter()
        layout = self.network.layout
        round = Round(state.round, experiment.rounds, len(self.federation.train), layout, experiment.seed)
        server, step = half.aggregate(state.server, update, round)
        if experiment.local.repair_nonfinite:
            repair(server.model[: layout.trainable])
        ended = time.perf_counter()
        down = sum(vector.numel() for vector in received.values()) * len(cohort)
        up = sum(vector.numel() for vector in update.mean.values()) * len(cohort)
        totals = Totals(
            params_up=state.totals.params_up + up,
            params_down=state.totals.params_down + down,
            client_samples=state.totals.client_samples + update.client_samples,
            forward_samples=state.totals.forward_samples + update.forward_samples,
        )
        metrics = {
            "train/loss": update.loss,
            "train/accuracy": update.accuracy,
            **{f"server/{name}": value for name, value in step.items()},
            "clients/excluded": float(len(update.excluded)),
            "time/round_s": ended - began,
            "time/server_s": ended - trained,
        }
        return State(state.round + 1, server, memory, totals), metrics

    def test(self, state: State) -> Metrics:
        """Test the global model: ``test/*`` metrics over the pooled test samples."""
        results = self.results(state, self.federation.test.samples)
        metrics = pooled_metrics(results, self.dataset.spec.classes)
        return {f"test/{name}": value for name, value in metrics.items()}

    def results(self, state: State, indices: torch.Tensor) -> SampleResults:
        """The global model's results on any samples.

        The newest answer is kept: the end of a run asks once more for the test of its last round.
        """
        if self._newest is None or self._newest[0] is not state or self._newest[1] is not indices:
            self.network.load(state.server.model)
            found = evaluate(self.network, self.samples, indices, self.experiment.evaluation.batch_size)
            self._newest = (state, indices, found)
        return self._newest[2]
