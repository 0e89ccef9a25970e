"""Models that clients train for themselves, from a common one: alone (solo) or to adapt it (local tuning)."""

from __future__ import annotations

import torch

from fedrun.appeal.base import OwnResults
from fedrun.evaluation import evaluate
from fedrun.executors.base import NOTHING, Task, Workplace
from fedrun.executors.choice import chosen
from fedrun.federation import Shares
from fedrun.parameters import FlatNetwork
from fedrun.strategies.base import MODEL
from fedrun.strategies.sgd import SGD
from fedrun.training import LocalTraining, Samples


def own_results(
    network: FlatNetwork,
    samples: Samples,
    model: torch.Tensor,
    train: Shares,
    test: Shares | None,
    local: LocalTraining,
    seed: int,
    executor: str,
    batch_size: int,
    of_train: bool = True,
) -> OwnResults:
    """Let every client train the model ``[P]`` by itself, and measure the result on its own samples.

    Args:
        network: scratch space.
        samples: the dataset.
        model: where every client starts.
        train: the clients' training samples.
        test: their test samples, if they have some.
        local: how they train.
        seed: of the order in which they visit their samples.
        executor: which one does it.
        batch_size: samples per forward pass of the measurement.
        of_train: whether to measure on the training samples, too.
    """
    work = Workplace(network=network, samples=samples, clients=train, client=SGD(), local=local, seed=seed)
    train_loss, test_loss, accuracy = (torch.full((len(train),), float("nan"), dtype=torch.float64) for _ in range(3))
    workers = chosen(executor, work, warns=False)  # the federated training meets the same refusal, and says so
    for visit in workers.visits(Task(torch.arange(len(train)), 0, {MODEL: model}, NOTHING)):
        client = visit.position
        network.load(visit.model)
        if of_train:
            train_loss[client] = evaluate(network, samples, train[client], batch_size).losses.double().mean()
        if test is not None and len(own := test[client]):
            found = evaluate(network, samples, own, batch_size)
            test_loss[client] = found.losses.double().mean()
            accuracy[client] = (found.predictions == found.targets).double().mean()
    return OwnResults(train_loss, test_loss, accuracy)
