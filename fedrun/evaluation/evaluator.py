"""How a state of the simulation does: on the pooled test samples, and for every client by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import torch

from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.samples import Samples
from fedrun.evaluation.client_results import ClientResults, Metrics
from fedrun.evaluation.early_rejection import screened
from fedrun.evaluation.metrics.classification import pooled_metrics
from fedrun.evaluation.own_models import own_results
from fedrun.evaluation.threshold_cache import cached, key
from fedrun.execution.choice import ExecutorTimings, due
from fedrun.execution.context import ExecutionContext
from fedrun.execution.ranks import SINGLE_PROCESS, Ranks
from fedrun.experiment.appeal.base import Convention, OwnResults, Thresholds
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.state import State
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.inference import SampleResults, ensemble, evaluate, joined, per_holder
from fedrun.strategies.client_state import LAST
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.server import ServerState
from fedrun.strategies.sgd import SGD
from fedrun.system.randomness import address, generator

T = TypeVar("T")

SEEN = "clients"
"""The population that training draws its cohorts from, as it is called in the metrics."""

UNSEEN = "unseen"
"""The population that never takes part."""


class Evaluator:
    """Evaluates models on a federation.

    Args:
        experiment: what runs.
        federation: who holds which samples.
        network: scratch space.
        samples: the dataset on its device.
        initial_model: tells the model ``[P]`` at which clients begin that train alone.
        cache: folder where thresholds are kept for other runs of the same clients; None: nowhere.
        ranks: the processes that evaluate together: all call the same methods, and have the same answers.
    """

    def __init__(
        self,
        experiment: Experiment,
        federation: Federation,
        network: FlatNetwork,
        samples: Samples,
        initial_model: Callable[[], torch.Tensor],
        cache: Path | None,
        ranks: Ranks = SINGLE_PROCESS,
    ) -> None:
        self.experiment = experiment
        self.federation = federation
        self.network = network
        self.samples = samples
        self._initial_model = initial_model
        self._cache = cache
        self._ranks = ranks
        self._newest: tuple[tuple[ServerState, ...], dict[int, SampleResults]] | None = None

    @cached_property
    def thresholds(self) -> dict[str, Thresholds]:
        """Every client's ρ_k, by population; empty where appeal is not measured."""
        if not self.experiment.appeal.known:
            return {}
        if self._cache is None or not self.experiment.appeal.trained:
            return self._computed_thresholds()
        name = key(self.experiment, self.federation.dataset, self._populations())
        return cached(self._cache / f"{name}.safetensors", self._computed_thresholds, self._ranks)

    def _computed_thresholds(self) -> dict[str, Thresholds]:
        experiment, initial = self.experiment, self._initial_model()
        return {
            name: experiment.appeal.thresholds(
                train, experiment.local, partial(self._alone, name, initial, train, test)
            )
            for name, (train, test) in self._populations().items()
        }

    def _populations(self) -> dict[str, tuple[ClientIndices, ClientIndices | None]]:
        """Training and test samples of the clients, by population."""
        federation = self.federation
        found = {SEEN: (federation.train, federation.client_test)}
        if federation.unseen is not None:
            found[UNSEEN] = (federation.unseen.train, federation.unseen.test)
        return found

    def _alone(
        self,
        purpose: str,
        model: torch.Tensor,
        train: ClientIndices,
        test: ClientIndices | None,
        local: LocalTraining,
        *,
        round: int = -1,
        of_train: bool = True,
        timings: ExecutorTimings = (),
    ) -> OwnResults:
        """Results of models that every client has trained by itself from a common one.

        Args:
            purpose: with the round it tells what the order of the samples is drawn from.
            model: the common one, ``[P]``.
            train: each client's training samples.
            test: and its test samples, if there are some.
            local: how it trains.
            round: -1: before the first.
            of_train: whether to measure on the training samples, too.
            pace: what is known of the executors' speed.
        """
        experiment = self.experiment
        seed = address(experiment.seed, f"alone/{purpose}", round)
        work = ExecutionContext(self.network, self.samples, clients=train, client=SGD(), local=local, seed=seed)
        executor, batch_size = due(experiment.hardware.executor, timings), experiment.evaluation.batch_size
        return own_results(work, model, test, executor, batch_size, of_train, self._ranks)

    def metrics(self, state: State, target: float | None = None) -> Metrics:
        """``test/*`` (or ``validation/*``) on the pooled samples; where clients test on their own ``clients/*`` and
        ``unseen/*``, too.

        Args:
            state: whose models are tested.
            target: test only until it is clear that this accuracy was not reached; None: fully.
        """
        tested = self._pooled_metrics(state) if target is None else self._screened_metrics(state, target)
        found = {f"{self.federation.evaluation_split}/{name}": value for name, value in tested.items()}
        if self.experiment.evaluation.client_means:
            found |= self._accuracy_of_means(state)
        for population, by_tuning in self.clients(state).items():
            for tuning, measured in by_tuning.items():
                found |= {f"{population}/{tuning}{name}": value for name, value in measured.metrics().items()}
        return found

    def _screened_metrics(self, state: State, target: float) -> Metrics:
        """How many test samples it took, and the accuracy on them; if they were all, everything."""
        experiment, test = self.experiment, self.federation.test.samples
        models = [server.model for server in state.models]
        screening = screened(
            partial(self._evaluate_together, models),
            test,
            target,
            experiment.evaluation.batch_size,
            experiment.evaluation.miss_probability,
            generator(experiment.seed, "screening", state.round),
        )
        evaluated = {"evaluated": float(screening.drawn)}
        if screening.results is None:
            return {"accuracy_estimate": screening.correct / screening.drawn, **evaluated}
        self._newest = (state.models, {id(test): screening.results})
        return pooled_metrics(screening.results, self.federation.dataset.spec.classes) | evaluated

    def _pooled_metrics(self, state: State) -> Metrics:
        classes = self.federation.dataset.spec.classes
        joined_later = self.experiment.strategy.afterwards().last_rounds(self.experiment.rounds) > 0
        if joined_later or not self._personal:  # those of a further stage are tested together, as its one model will be
            return pooled_metrics(self.results(state, self.federation.test.samples), classes)
        if self.federation.client_test is not None:
            return pooled_metrics(self._personal_results(state, self.federation.client_test), classes)
        # Without a global model and without test samples of their own, every client is tested on all test samples.
        test = self.federation.test.samples
        each = self._by_client(state, lambda _, models: pooled_metrics(self._evaluate(models, test), classes))
        return {name: sum(metrics[name] for metrics in each) / len(each) for name in each[0]}

    def _accuracy_of_means(self, state: State) -> Metrics:
        """The test accuracy of the mean of the models of the last participants, if the server half has it, and of all
        clients' last models.
        """
        clients, initial = len(self.federation.train), self._initial_model()
        total = torch.zeros_like(initial)
        for client in self._own_clients(state, LAST):
            model = state.memory.held.get(client, {}).get(LAST)
            total += initial if model is None else model.to(total)
        self._ranks.all_reduce(total)
        participants = self.experiment.strategy.server.mean_model(state.server, self.network.layout)

        def accuracy(model: torch.Tensor) -> float:
            found = self._evaluate([model], self.federation.test.samples)
            return (found.predictions == found.targets).double().mean().item()

        means = {"participants": participants, "all": total / clients}
        tested = self.federation.evaluation_split
        return {f"{tested}/accuracy_of_{whose}": accuracy(mean) for whose, mean in means.items() if mean is not None}

    def results(self, state: State, indices: torch.Tensor) -> SampleResults:
        """The global model's results on any samples; those of the sum of their logits where there are several.

        The newest models' answers are kept: one round asks several times, the end of a run asks once more, and where
        nobody took part the next round asks the same again.
        """
        if self._newest is None or self._newest[0] is not state.models:
            self._newest = (state.models, {})
        known = self._newest[1]
        if id(indices) not in known:  # the federation's own tensors, which live as long as this object
            known[id(indices)] = self._evaluate_together([server.model for server in state.models], indices)
        return known[id(indices)]

    def _evaluate_together(self, models: Sequence[torch.Tensor], indices: torch.Tensor) -> SampleResults:
        """Evaluate on all ranks, each on some of the very batches that one process would form."""
        ranks, size = self._ranks, self.experiment.evaluation.batch_size
        if ranks.count == 1:
            return self._evaluate(models, indices)
        batches = ranks.part(-(-len(indices) // size))
        own, nothing = indices[size * batches.start : size * batches.stop], torch.zeros(0)
        found = self._evaluate(models, own) if len(own) else SampleResults(nothing, nothing.long(), nothing.long())
        return joined(ranks.all_gather(found))

    def _evaluate(self, models: Sequence[torch.Tensor], indices: torch.Tensor) -> SampleResults:
        how = self.experiment.evaluation
        precision = how.precision if self.experiment.strategy.client.personal is None else "float32"
        if len(models) > 1:
            return ensemble(self.network, models, self.samples, indices, how.batch_size, precision)
        self.network.load(models[0])
        return evaluate(self.network, self.samples, indices, how.batch_size, precision)

    def clients(self, state: State) -> dict[str, dict[str, ClientResults]]:
        """How every client does, by population; empty where there are neither test samples of its own nor thresholds.

        For each population the results of the model as it is (under ``""``), and, where asked for, of the model that
        the client has tuned (under ``"tuned_"``).
        """
        return {
            name: {
                tuning: ClientResults.of(results, self.thresholds.get(name), self._convention)
                for tuning, results in self._measured(state, name, train, test).items()
            }
            for name, (train, test) in self._populations().items()
            if test is not None or self.experiment.appeal.known
        }

    @property
    def _convention(self) -> Convention:
        """Which losses are compared in GM-Appeal."""
        asked = self.experiment.appeal.losses
        if asked != "auto":
            return asked
        return "train" if self.federation.client_test is None else "test"

    def on_training(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        """F_k(w) and the accuracy of every client that trains on its training samples, float64 ``[N]`` each."""
        return self._per_client(state, SEEN, self.federation.train)

    def _per_client(self, state: State, population: str, shares: ClientIndices) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss and accuracy of each client of a population on some samples of its own."""
        personal = population == SEEN and self._personal
        results = self._personal_results(state, shares) if personal else self.results(state, shares.samples)
        return per_holder(results, shares)

    def _measured(
        self, state: State, population: str, train: ClientIndices, test: ClientIndices | None
    ) -> dict[str, OwnResults]:
        experiment = self.experiment
        nothing = torch.full((len(train),), float("nan"), dtype=torch.float64)
        train_loss, test_loss, accuracy = nothing, nothing, nothing
        if test is not None:
            test_loss, accuracy = self._per_client(state, population, test)
        if experiment.appeal.known and self._convention == "train":
            train_loss, _ = self._per_client(state, population, train)
        found = {"": OwnResults(train_loss, test_loss, accuracy)}
        if steps := experiment.evaluation.tuning_steps:
            given, local = experiment.evaluation.tuning_lr, experiment.local
            rate = local.rate(state.round) if given is None else given
            brief = replace(local, lr=rate, lr_decay=1.0, epochs=None, steps=steps)
            found["tuned_"] = self._alone(
                population,
                state.server.model,
                train,
                test,
                brief,
                round=state.round,
                of_train=self._convention == "train",
                timings=state.timings,
            )
        return found

    @property
    def _personal(self) -> bool:
        """Whether clients are served by different models: their own, or, where they test by themselves, clusters'."""
        clustered = self.experiment.strategy.clusters().several and self.federation.client_test is not None
        return clustered or self.experiment.strategy.client.personal is not None

    def _serving(self, state: State, client: int) -> list[torch.Tensor]:
        """The models ``[P]`` that serve a client, by the sum of their logits.

        Its own model where it has one, otherwise the global one; the one that counts most for it where there are
        several, and all of them for a client that has not been assigned yet.
        """
        half, everything = self.experiment.strategy.client, [server.model for server in state.models]
        if half.personal is None:
            row = torch.zeros(len(everything)) if state.membership is None else state.membership[client]
            return [everything[int(row.argmax())]] if row.any() else everything
        kept = state.memory.held.get(client, {}).get(half.personal)
        if kept is None:
            return everything
        return [half.own_model(everything[0], kept.to(everything[0]), self.network.layout)]

    def _by_client(self, state: State, measure: Callable[[int, list[torch.Tensor]], T]) -> list[T]:
        """Measure, for every client, the models that serve it."""
        own = self._own_clients(state, self.experiment.strategy.client.personal)
        measured = {client: measure(client, self._serving(state, client)) for client in own}
        everywhere = {client: found for part in self._ranks.all_gather(measured) for client, found in part.items()}
        return [everywhere[client] for client in range(len(self.federation.train))]

    def _own_clients(self, state: State, name: str | None) -> list[int]:
        """The clients, ascending, that this rank is to look at: those that remember something of this name here, and
        its part of those that do so nowhere.
        """
        ranks = self._ranks
        held = [client for client, vectors in state.memory.held.items() if name in vectors]
        holder = {client: rank for rank, clients in enumerate(ranks.all_gather(held)) for client in clients}
        everyone = range(len(self.federation.train))
        return [client for client in everyone if holder.get(client, client % ranks.count) == ranks.number]

    def _personal_results(self, state: State, own: ClientIndices) -> SampleResults:
        """The models that serve each client on some samples of the client's own, in their order."""
        return joined(self._by_client(state, lambda client, models: self._evaluate(models, own[client])))
