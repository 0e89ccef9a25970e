"""Models that clients train for themselves, from a common one: alone (solo) or to adapt it (local tuning)."""

from __future__ import annotations

import torch

from fedrun.data.federation import ClientIndices
from fedrun.execution.choice import chosen
from fedrun.execution.context import CohortJob, ExecutionContext
from fedrun.execution.distributed_cohort import balanced
from fedrun.execution.ranks import Ranks
from fedrun.execution.stacked import StackedPerceptron
from fedrun.experiment.appeal.base import OwnResults
from fedrun.models.inference import evaluate
from fedrun.strategies.client_state import NO_STATE
from fedrun.strategies.vectors import MODEL


def own_results(
    work: ExecutionContext,
    model: torch.Tensor,
    test: ClientIndices | None,
    executor: str,
    batch_size: int,
    of_train: bool,
    ranks: Ranks,
) -> OwnResults:
    """Let every client train the model ``[P]`` by itself, and measure the result on its own samples.

    Args:
        work: the clients with their training samples, and how they train.
        model: where every client starts.
        test: their test samples, if they have some.
        executor: which one does it where clients are not better trained side by side.
        batch_size: samples per forward pass of the measurement.
        of_train: whether to measure on the training samples, too.
        ranks: share the clients out among themselves; each has all results.
    """
    network, samples, train = work.network, work.samples, work.clients
    clients = torch.arange(len(train))
    if ranks.count > 1:
        clients = clients[balanced(train.sizes.tolist(), ranks.count) == ranks.number]
    found = torch.full((3, len(train)), float("nan"), dtype=torch.float64)
    train_loss, test_loss, accuracy = found
    # Small networks of this kind train faster side by side, also where the federated training goes client by client.
    name = executor if StackedPerceptron.of(network.network) is None else "vectorized"
    workers = chosen(name, work, warns=False)  # the federated training meets the same refusal, and says so
    for visit in workers.visits(CohortJob(clients, 0, {MODEL: model}, NO_STATE)) if len(clients) else ():
        client = int(clients[visit.position])
        network.load(visit.model)
        if of_train:
            train_loss[client] = evaluate(network, samples, train[client], batch_size).losses.double().mean()
        if test is not None and len(own := test[client]):
            tested = evaluate(network, samples, own, batch_size)
            test_loss[client] = tested.losses.double().mean()
            accuracy[client] = (tested.predictions == tested.targets).double().mean()
    for others, results in ranks.all_gather((clients, found[:, clients])):
        found[:, others] = results
    return OwnResults(train_loss, test_loss, accuracy)
