"""How a state of the simulation does: on the pooled test samples, and for every client by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import torch

from fedrun.appeal.base import Convention, OwnResults, Thresholds
from fedrun.appeal.cache import cached, key
from fedrun.evaluation import SampleResults, evaluate, joined, per_holder, pooled_metrics
from fedrun.experiment import Experiment
from fedrun.federation import Federation, Shares
from fedrun.own_models import own_results
from fedrun.parameters import FlatNetwork
from fedrun.per_client import ClientResults
from fedrun.randomness import address
from fedrun.ranks import ALONE, Ranks
from fedrun.state import State
from fedrun.training import LocalTraining, Samples

T = TypeVar("T")

Metrics = dict[str, float]

SEEN = "clients"
"""The population that training draws its cohorts from, as it is called in the metrics."""

UNSEEN = "unseen"
"""The population that never takes part."""


class Assessment:
    """Evaluates models on a federation.

    Args:
        experiment: what runs.
        federation: who holds which samples.
        network: scratch space.
        samples: the dataset on its device.
        initial_model: ``[P]``, where clients begin that train alone.
        cache: folder where thresholds are kept for other runs of the same clients; None: nowhere.
        ranks: the processes that evaluate together: all call the same methods, and have the same answers.
    """

    def __init__(
        self,
        experiment: Experiment,
        federation: Federation,
        network: FlatNetwork,
        samples: Samples,
        initial_model: torch.Tensor,
        cache: Path | None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.experiment = experiment
        self.federation = federation
        self.network = network
        self.samples = samples
        self._initial_model = initial_model
        self._cache = cache
        self._ranks = ranks
        self._newest: tuple[State, dict[int, SampleResults]] | None = None

    @cached_property
    def thresholds(self) -> dict[str, Thresholds]:
        """Every client's ρ_k, by population; empty where appeal is not measured."""
        if not self.experiment.appeal.known:
            return {}
        if self._cache is None:
            return self._computed_thresholds()
        name = key(self.experiment, self.federation.dataset.fingerprint)
        return cached(self._cache / f"{name}.safetensors", self._computed_thresholds, self._ranks)

    def _computed_thresholds(self) -> dict[str, Thresholds]:
        experiment = self.experiment
        return {
            name: experiment.appeal.thresholds(
                train, experiment.local, partial(self._alone, name, self._initial_model, train, test)
            )
            for name, (train, test) in self._populations().items()
        }

    def _populations(self) -> dict[str, tuple[Shares, Shares | None]]:
        """Training and test samples of the clients, by population."""
        federation = self.federation
        found = {SEEN: (federation.train, federation.own_test)}
        if federation.unseen is not None:
            found[UNSEEN] = (federation.unseen.train, federation.unseen.test)
        return found

    def _alone(
        self,
        purpose: str,
        model: torch.Tensor,
        train: Shares,
        test: Shares | None,
        local: LocalTraining,
        round: int = -1,
    ) -> OwnResults:
        """Results of models that every client has trained by itself from a common one."""
        experiment = self.experiment
        return own_results(
            self.network,
            self.samples,
            model,
            train,
            test,
            local,
            address(experiment.seed, f"alone/{purpose}", round),
            experiment.hardware.executor,
            experiment.evaluation.batch_size,
            ranks=self._ranks,
        )

    def metrics(self, state: State) -> Metrics:
        """``test/*`` on the pooled test samples, and ``clients/*``, ``unseen/*`` where clients test on their own."""
        found = {f"test/{name}": value for name, value in self._pooled_metrics(state).items()}
        for population, by_tuning in self.clients(state).items():
            for tuning, measured in by_tuning.items():
                found |= {f"{population}/{tuning}{name}": value for name, value in measured.metrics().items()}
        return found

    def _pooled_metrics(self, state: State) -> Metrics:
        classes = self.federation.dataset.spec.classes
        if self.experiment.strategy.client.personal is None:
            return pooled_metrics(self.results(state, self.federation.test.samples), classes)
        if self.federation.own_test is not None:
            return pooled_metrics(self._personal_results(state), classes)
        # Without a global model and without test samples of their own, every client is tested on all test samples.
        test = self.federation.test.samples
        each = self._by_client(state, lambda _, model: pooled_metrics(self._evaluate(model, test), classes))
        return {name: sum(metrics[name] for metrics in each) / len(each) for name in each[0]}

    def results(self, state: State, indices: torch.Tensor) -> SampleResults:
        """The global model's results on any samples.

        The newest state's answers are kept: one round asks several times, and the end of a run asks once more.
        """
        if self._newest is None or self._newest[0] is not state:
            self._newest = (state, {})
        known = self._newest[1]
        if id(indices) not in known:  # the federation's own tensors, which live as long as this object
            known[id(indices)] = self._evaluate_together(state.server.model, indices)
        return known[id(indices)]

    def _evaluate_together(self, model: torch.Tensor, indices: torch.Tensor) -> SampleResults:
        """Evaluate on all ranks, each on some of the very batches that one process would form."""
        ranks, size = self._ranks, self.experiment.evaluation.batch_size
        if ranks.count == 1:
            return self._evaluate(model, indices)
        batches = -(-len(indices) // size)
        bounds = [size * (batches * rank // ranks.count) for rank in (ranks.number, ranks.number + 1)]
        own, nothing = indices[slice(*bounds)], torch.zeros(0)
        found = self._evaluate(model, own) if len(own) else SampleResults(nothing, nothing.long(), nothing.long())
        return joined(ranks.gathered(found))

    def _evaluate(self, model: torch.Tensor, indices: torch.Tensor) -> SampleResults:
        self.network.load(model)
        return evaluate(self.network, self.samples, indices, self.experiment.evaluation.batch_size)

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
        return "train" if self.federation.own_test is None else "test"

    def training_losses(self, state: State) -> torch.Tensor:
        """F_k(w) of every client that trains, float64 ``[N]``."""
        train = self.federation.train
        return per_holder(self.results(state, train.samples), train)[0]

    def _measured(self, state: State, population: str, train: Shares, test: Shares | None) -> dict[str, OwnResults]:
        experiment = self.experiment
        personal = population == SEEN and experiment.strategy.client.personal is not None
        nothing = torch.full((len(train),), float("nan"), dtype=torch.float64)
        train_loss, test_loss, accuracy = nothing, nothing, nothing
        if test is not None:
            tested = self._personal_results(state) if personal else self.results(state, test.samples)
            test_loss, accuracy = per_holder(tested, test)
        if experiment.appeal.known and self._convention == "train":
            train_loss, _ = per_holder(self.results(state, train.samples), train)
        found = {"": OwnResults(train_loss, test_loss, accuracy)}
        if steps := experiment.evaluation.tuning_steps:
            given, local = experiment.evaluation.tuning_lr, experiment.local
            rate = local.rate(state.round) if given is None else given
            brief = replace(local, lr=rate, lr_decay=1.0, epochs=None, steps=steps)
            found["tuned_"] = self._alone(population, state.server.model, train, test, brief, state.round)
        return found

    def _by_client(self, state: State, measure: Callable[[int, torch.Tensor], T]) -> list[T]:
        """Measure every client's own model ``[P]`` (the global one for a client that has not trained yet).

        Each rank measures those that it holds, and its part of those that nobody does.
        """
        name, ranks = self.experiment.strategy.client.personal, self._ranks
        assert name is not None
        held = {client: vectors[name] for client, vectors in state.memory.held.items() if name in vectors}
        holder = {client: rank for rank, clients in enumerate(ranks.gathered(list(held))) for client in clients}
        everyone = range(len(self.federation.train))
        own = [client for client in everyone if holder.get(client, client % ranks.count) == ranks.number]
        measured = {client: measure(client, held.get(client, state.server.model)) for client in own}
        everywhere = {client: found for part in ranks.gathered(measured) for client, found in part.items()}
        return [everywhere[client] for client in everyone]

    def _personal_results(self, state: State) -> SampleResults:
        """Every client's own model on the client's own test samples, in their order."""
        own = self.federation.own_test
        assert own is not None
        return joined(self._by_client(state, lambda client, model: self._evaluate(model, own[client])))
