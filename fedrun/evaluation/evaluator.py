"""The evaluation of a phase's models: on the pooled test samples, and for each client."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TypeVar

import torch

from fedrun.data.evaluation_split import pooled_name
from fedrun.data.federation import ClientIndices
from fedrun.data.tasks.base import SampleResults, joined
from fedrun.data.tasks.metric_names import ESTIMATED_ACCURACY, OF_GLOBAL, OF_TUNED
from fedrun.evaluation.client_groups import SEEN, ClientGroup, client_groups
from fedrun.evaluation.client_results import ClientResults, Metrics
from fedrun.evaluation.early_rejection import evaluate_until_rejected
from fedrun.evaluation.own_models import own_results
from fedrun.execution.client_measurements import with_measurements
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.distributed_cohort import DistributedCohort
from fedrun.execution.in_process import InProcess
from fedrun.experiment.appeal.base import Convention, OwnResults, Thresholds
from fedrun.experiment.experiment import Experiment
from fedrun.experiment.state import State
from fedrun.models.inference import ensemble, evaluate, per_client, total_weights, training_losses
from fedrun.strategies.client import is_personal, trains_global_model
from fedrun.strategies.client_contract import check_received, check_vector
from fedrun.strategies.client_state import LAST
from fedrun.strategies.contract import versions
from fedrun.strategies.phase import Phase
from fedrun.strategies.server import ServerState
from fedrun.strategies.sgd import SGD, HeadSGD
from fedrun.strategies.vectors import MODEL
from fedrun.system.randomness import generator

T = TypeVar("T")


class Evaluator:
    """Evaluates the models of a phase.

    Args:
        experiment: has the settings of the evaluation.
        phase: has the network, the samples and the clients.
        thresholds: computes the threshold ρ_k of each client, by group; empty if appeal is not measured.
        distributed: divides the clients among the processes that evaluate together: all call the same methods and get
            the same results.
    """

    def __init__(
        self,
        experiment: Experiment,
        phase: Phase,
        thresholds: Callable[[], dict[str, Thresholds]],
        distributed: DistributedCohort,
    ) -> None:
        self._experiment = experiment
        self._phase = phase
        self._thresholds = thresholds
        self._distributed = distributed
        self._ranks = distributed.ranks
        # by the tensor of sample numbers, which is hashed by its identity
        self._newest: tuple[tuple[ServerState, ...], dict[torch.Tensor, SampleResults]] | None = None
        self._newest_personal: tuple[weakref.ref[State], dict[torch.Tensor, SampleResults]] | None = None
        self._newest_clients: tuple[weakref.ref[State], dict[str, dict[str, ClientResults]]] | None = None

    @property
    def tested(self) -> str:
        """The model of the metrics on pooled samples, and the samples, in words."""
        phase, federation = self._phase, self._phase.federation
        samples = f"{len(federation.test.samples):,} pooled {federation.evaluation_split} samples"
        if phase.is_last and self._personal:
            model = "each client's own model" if is_personal(phase.client) else "the model of each client's cluster"
            if federation.client_test is not None:
                return f"{model} on the client's own {federation.evaluation_split} samples"
            return f"{model} on {samples}; means over clients"
        model = "the summed logits of all models" if phase.clustering.several else "the global model"
        if not phase.is_last:
            model += f", from round {phase.end + 1:,} the concatenated model,"
        return f"{model} on {samples}"

    def metrics(self, state: State, target: float | None = None) -> Metrics:
        """``test/*`` (or ``validation/*``) on the pooled samples; ``clients/*`` and ``unseen/*`` if clients are
        evaluated on their own samples.

        Args:
            state: the state whose models are evaluated.
            target: evaluate only until it is clear that this accuracy was not reached; None: on all samples.
        """
        split = self._phase.federation.evaluation_split
        pooled = self._pooled_metrics(state) if target is None else self._metrics_until_rejected(state, target)
        metrics = {pooled_name(split, name): value for name, value in pooled.items()}
        triggered = self._phase.federation.triggered
        if triggered is not None and target is None:
            metrics[pooled_name(split, "attack_success")] = self._attack_success(state, triggered)
        if self._experiment.evaluation.client_means:
            metrics |= {pooled_name(split, name): value for name, value in self._score_of_means(state).items()}
        for group, by_kind in self.clients(state).items():
            for kind, results in by_kind.items():
                of_clients = results.metrics(self._phase.samples.task, self._tests[group])
                metrics |= {f"{group}/{kind}{name}": value for name, value in of_clients.items()}
        return metrics

    def results(self, state: State, indices: torch.Tensor) -> SampleResults:
        """The results of the global model on any samples (int64 ``[n]``). The logits of several models are summed.

        The results of the newest models are kept: a round needs them several times, the end of a run once more, and a
        round without participants does not change the models.
        """
        if self._newest is None or self._newest[0] is not state.models:
            self._newest = (state.models, {})
        known = self._newest[1]
        if indices not in known:
            known[indices] = self._evaluate_on_all_ranks([one.model for one in state.models], indices)
        return known[indices]

    def clients(self, state: State) -> dict[str, dict[str, ClientResults]]:
        """The results of the clients, by group and kind: under ``""`` of the model that each client uses, without
        tuning; the others as in the metrics. Empty if clients have neither test samples nor thresholds.

        The results of the newest state are kept: the end of a run needs them once more.
        """
        if self._newest_clients is None or self._newest_clients[0]() is not state:
            of_groups, task = {}, self._phase.samples.task
            for group in client_groups(self._phase.federation):
                if group.test is not None or self._experiment.appeal.known:
                    thresholds, tests = self._thresholds().get(group.name), self._tests[group.name]
                    of_groups[group.name] = {
                        kind: ClientResults.of(results, thresholds, self._convention, task, tests)
                        for kind, results in self._results_by_kind(state, group).items()
                    }
            self._newest_clients = (weakref.ref(state), of_groups)
        return self._newest_clients[1]

    def models_of(self, state: State, client: int) -> list[torch.Tensor]:
        """The models ``[P]`` that a client uses; the logits of several are summed.

        It uses its own model, or the global one if clients have no models of their own or this one has not taken part
        yet. Of several global models it uses the one with the largest weight for it, or all of them if it has not been
        assigned yet.
        """
        strategy, layout = self._phase.client, self._phase.network.layout
        models = [server.model for server in state.models]
        if not is_personal(strategy):
            weights = torch.zeros(len(models)) if state.membership is None else state.membership[client]
            return [models[int(weights.argmax())]] if weights.any() else models
        context, number = self._executor.context, torch.tensor([client])
        kept = context.training_lengths  # without any, a client that has taken part cannot be told from a new one
        is_new = bool(kept) and kept.keys().isdisjoint(state.client_states.held.get(client, {}))
        if is_new and not strategy.evaluates_newcomers:
            return models
        received = {**self._phase.server.broadcast(state.server), MODEL: models[0]}
        if (sent := self._phase.models_for(state.server, number)) is not None:
            received[MODEL] = sent[0]
        client_state = state.client_states.of(client, context.training_lengths, models[0].device)
        job = CohortJob(number, state.round, received, state.client_states)
        info = with_measurements(context, client, self._executor.infos(job).of(0))
        before = versions(received)
        own = strategy.own_model(received, client_state, info)
        check_vector(strategy, "own_model", own, layout.size)
        check_received(strategy, received, before)
        return [own]

    def on_training(self, state: State) -> tuple[torch.Tensor, torch.Tensor]:
        """F_k(w), the loss of each client on its training samples, and its score there, float64 ``[N]`` each."""
        train = self._phase.federation.train
        return per_client(self._results_of(SEEN, state, train), train)

    def training_losses(self, state: State, clients: torch.Tensor) -> torch.Tensor:
        """F_k(w) of some clients (int64 ``[c]``), float64 ``[c]``, by the model that each uses, also if it has no test
        samples: the global one, its cluster's, or its own.
        """
        train = self._phase.federation.train
        if len(state.models) == 1 and not is_personal(self._phase.client):
            if len(clients) == len(train):
                return training_losses(self.results(state, train.samples), train)[clients]
            some = ClientIndices.of([train[client].numpy() for client in clients.tolist()])
            return training_losses(self._evaluate_on_all_ranks([state.server.model], some.samples), some)

        def loss(client: int, models: list[torch.Tensor]) -> float:
            return self._evaluate(models, train[client]).training_loss

        return torch.tensor(self._each(state, clients, loss), dtype=torch.float64)

    # --- on the pooled samples ---

    def _pooled_metrics(self, state: State) -> Metrics:
        federation, outputs = self._phase.federation, self._phase.federation.dataset.spec.classes
        if not self._phase.is_last or not self._personal:  # the next phase combines several models into one
            return self.results(state, federation.test.samples).metrics(outputs)
        if federation.client_test is not None:
            return self._personal_results(state, federation.client_test).metrics(outputs)
        # Without a global model and without clients' own test samples, every client is tested on all test samples.
        test = federation.test.samples
        by_client = self._each(state, self._everyone, lambda _, models: self._evaluate(models, test).metrics(outputs))
        return {name: sum(metrics[name] for metrics in by_client) / len(by_client) for name in by_client[0]}

    def _attack_success(self, state: State, triggered: torch.Tensor) -> float:
        """The score on test samples with a trigger. If clients use different models, the mean over the honest clients'
        models, or over all if there is no honest client.
        """
        if not self._phase.is_last or not self._personal:
            return self.results(state, triggered).mean_score
        federation = self._phase.federation
        victims = set(range(len(federation.train))) - federation.attackers or federation.attackers

        def score(client: int, models: list[torch.Tensor]) -> float:
            return self._evaluate(models, triggered).mean_score

        scores = self._each(state, torch.tensor(sorted(victims)), score)
        return sum(scores) / len(scores)

    def _metrics_until_rejected(self, state: State, target: float) -> Metrics:
        """The number of test samples that were needed, and the accuracy on them; all metrics if all were needed."""
        evaluation, test = self._experiment.evaluation, self._phase.federation.test.samples
        rejection = evaluate_until_rejected(
            partial(self._evaluate_on_all_ranks, [server.model for server in state.models]),
            test,
            target,
            evaluation.batch_size,
            evaluation.miss_probability,
            generator(self._phase.seed, "screening", state.round),
        )
        evaluated = {"evaluated": float(rejection.drawn)}
        if rejection.results is None:
            return {ESTIMATED_ACCURACY: rejection.correct / rejection.drawn, **evaluated}
        self._newest = (state.models, {test: rejection.results})
        return rejection.results.metrics(self._phase.federation.dataset.spec.classes) | evaluated

    def _score_of_means(self, state: State) -> Metrics:
        """The scores of two mean models: of the last round's participants, and of all clients."""
        assert state.last_mean is not None
        phase = self._phase
        initial = phase.initial_model()
        total = torch.zeros_like(initial)
        for client in self._distributed.local_clients(self._everyone).tolist():
            model = state.client_states.held.get(client, {}).get(LAST)
            total += initial if model is None else model.to(total)
        self._ranks.all_reduce(total)
        means = {"participants": state.last_mean, "all": total / len(phase.federation.train)}

        def score(model: torch.Tensor) -> float:
            return self._evaluate([model], phase.federation.test.samples).mean_score

        task = phase.samples.task
        return {f"{task.score}_of_{name}": score(mean) for name, mean in means.items()}

    # --- for each client ---

    @property
    def _convention(self) -> Convention:
        """Which losses are compared in GM-Appeal."""
        convention = self._experiment.appeal.losses
        if convention != "auto":
            return convention
        return "train" if self._phase.federation.client_test is None else "test"

    @property
    def _personal(self) -> bool:
        """Whether clients use different models: their own, or, if they have test samples, those of clusters."""
        phase = self._phase
        clustered = phase.clustering.several and phase.federation.client_test is not None
        return clustered or is_personal(phase.client)

    @cached_property
    def _tests(self) -> dict[str, torch.Tensor]:
        """The sum of the weights of each client's test samples, float64 ``[n]``, by group."""
        return {
            group.name: torch.zeros(len(group.train), dtype=torch.float64)
            if group.test is None
            else total_weights(self._phase.samples, group.test)
            for group in client_groups(self._phase.federation)
        }

    def _results_by_kind(self, state: State, group: ClientGroup) -> dict[str, OwnResults]:
        """A group's results of the models that the clients use (under ``""``); if clients have their own models,
        also of the global one (:data:`OF_GLOBAL`); if requested, of the global model after tuning (:data:`OF_TUNED`).
        """
        evaluation, client, local = self._experiment.evaluation, self._phase.client, self._phase.local
        results = {"": self._on_own_samples(group, partial(self._results_of, group.name, state))}
        if is_personal(client) and trains_global_model(client) and group.name == SEEN and group.test is not None:
            results[OF_GLOBAL] = self._on_own_samples(group, lambda clients: self.results(state, clients.samples))
        if (tuning := evaluation.tuning(local, local.rate(max(state.round - 1, 0)))) is not None:
            results[OF_TUNED] = own_results(
                self._experiment,
                self._phase,
                group,
                state.server.model,
                tuning,
                self._ranks,
                client=SGD() if evaluation.tuning_part == "model" else HeadSGD(),
                round=state.round,
                of_train=self._convention == "train",
            )
        return results

    def _on_own_samples(self, group: ClientGroup, evaluate: Callable[[ClientIndices], SampleResults]) -> OwnResults:
        """A group's results on the clients' test samples, and on the training samples if their losses are
        compared.
        """
        unknown = torch.full((len(group.train),), float("nan"), dtype=torch.float64)
        test_loss, score = (unknown, unknown) if group.test is None else per_client(evaluate(group.test), group.test)
        compared = self._experiment.appeal.known and self._convention == "train"
        train_loss = training_losses(evaluate(group.train), group.train) if compared else unknown
        return OwnResults(train_loss, test_loss, score)

    def _results_of(self, group: str, state: State, clients: ClientIndices) -> SampleResults:
        """The results, on some of their own samples, of the model that each client of a group uses."""
        personal = group == SEEN and self._personal
        return self._personal_results(state, clients) if personal else self.results(state, clients.samples)

    def _personal_results(self, state: State, clients: ClientIndices) -> SampleResults:
        """The results of each client's models on its samples, in order; those of the newest state are kept."""
        if self._newest_personal is None or self._newest_personal[0]() is not state:
            self._newest_personal = (weakref.ref(state), {})  # weak: its client states may fill the memory
        known = self._newest_personal[1]
        if clients.samples not in known:
            parts = self._each(state, self._everyone, lambda client, models: self._evaluate(models, clients[client]))
            known[clients.samples] = joined(parts)
        return known[clients.samples]

    @property
    def _everyone(self) -> torch.Tensor:
        """The numbers of all clients, int64 ``[N]``."""
        return torch.arange(len(self._phase.federation.train))

    def _each(self, state: State, clients: torch.Tensor, measure: Callable[[int, list[torch.Tensor]], T]) -> list[T]:
        """Measure the models that each of some clients uses (int64 ``[c]``), in their order."""
        return self._distributed.map_clients(clients, lambda client: measure(client, self.models_of(state, client)))

    @cached_property
    def _executor(self) -> InProcess:
        """Gives the information about clients that local training has."""
        return InProcess(ExecutionContext.of(self._phase))

    # --- forward passes ---

    def _evaluate_on_all_ranks(self, models: Sequence[torch.Tensor], indices: torch.Tensor) -> SampleResults:
        """Evaluate in the same batches as a single process; each rank computes some of them."""
        ranks, size = self._ranks, self._experiment.evaluation.batch_size
        if ranks.count == 1:
            return self._evaluate(models, indices)
        batches = ranks.part(-(-len(indices) // size))
        part = indices[size * batches.start : size * batches.stop]
        return joined(ranks.all_gather(self._evaluate(models, part)))

    def _evaluate(self, models: Sequence[torch.Tensor], indices: torch.Tensor) -> SampleResults:
        evaluation, network, samples = self._experiment.evaluation, self._phase.network, self._phase.samples
        precision = "float32" if is_personal(self._phase.client) else evaluation.precision
        if len(models) > 1:
            return ensemble(network, models, samples, indices, evaluation.batch_size, precision)
        network.load(models[0])
        return evaluate(network, samples, indices, evaluation.batch_size, precision)
