"""Models that each client trains alone from a common model: for thresholds, or to adapt the global model."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedrun.evaluation.client_groups import ClientGroup
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.distributed_cohort import balanced
from fedrun.execution.executor_choice import supported_executor
from fedrun.execution.ranks import Ranks
from fedrun.experiment.appeal.base import OwnResults
from fedrun.experiment.experiment import Experiment
from fedrun.models.inference import evaluate
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.phase import Phase
from fedrun.strategies.vectors import MODEL
from fedrun.system.randomness import address


def own_results(
    experiment: Experiment,
    phase: Phase,
    group: ClientGroup,
    model: torch.Tensor,
    local: LocalTraining,
    ranks: Ranks,
    *,
    client: ClientStrategy,
    round: int = -1,
    of_train: bool = True,
) -> OwnResults:
    """Train a model for every client of a group on its own samples alone, and evaluate it on them.

    Args:
        experiment: has the settings of the evaluation and the executor.
        phase: has the network and the samples.
        group: the clients.
        model: the initial model of every client, ``[P]``.
        local: how each client trains.
        ranks: share the clients; each rank returns all results.
        client: the client strategy.
        round: address of the random order of the samples, with the group's name; -1: before the first.
        of_train: whether to evaluate on the training samples, too.
    """
    network, samples, train = phase.network, phase.samples, group.train
    batch_size = experiment.evaluation.batch_size
    seed = address(phase.seed, f"alone/{group.name}", round)
    context = replace(ExecutionContext.of(phase), clients=train, client=client, local=local, seed=seed)
    clients = torch.arange(len(train))
    if ranks.count > 1:
        clients = clients[balanced(train.sizes.tolist(), ranks.count) == ranks.number]
    results = torch.full((3, len(train)), float("nan"), dtype=torch.float64)
    train_loss, test_loss, score = results
    executor = supported_executor(experiment.hardware.executor, context, len(clients))
    job = CohortJob(clients, 0, {MODEL: model}, ClientStates())
    for result in executor.client_results(job) if len(clients) else ():
        number = result.client
        network.load(result.model)
        if of_train:
            train_loss[number] = evaluate(network, samples, train[number], batch_size).training_loss
        if group.test is not None:
            tested = evaluate(network, samples, group.test[number], batch_size)
            test_loss[number] = tested.mean_loss
            score[number] = tested.mean_score
    for part, values in ranks.all_gather((clients, results[:, clients])):
        results[:, part] = values
    return OwnResults(train_loss, test_loss, score)
