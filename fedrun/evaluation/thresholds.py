"""The threshold of each client: computed, or read from the cache."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fedrun.evaluation.client_groups import ClientGroup, client_groups
from fedrun.evaluation.own_models import own_results
from fedrun.evaluation.threshold_cache import cached, key
from fedrun.execution.ranks import Ranks
from fedrun.experiment.appeal.base import OwnResults, Thresholds
from fedrun.experiment.experiment import Experiment
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.phase import Phase
from fedrun.strategies.sgd import SGD


def client_thresholds(experiment: Experiment, phase: Phase, cache: Path | None, ranks: Ranks) -> dict[str, Thresholds]:
    """The threshold ρ_k of each client, by group; empty if appeal is not measured.

    Args:
        experiment: experiment of the run.
        phase: the first; clients that train for their thresholds start from its initial model.
        cache: folder in which thresholds are stored for other runs of the same clients; None: they are not stored.
        ranks: the processes that compute together.

    Raises:
        InputError: the thresholds cannot be computed or read.
    """
    appeal, groups = experiment.appeal, client_groups(phase.federation)
    if not appeal.known:
        return {}
    network, initial = phase.network, phase.initial_model()

    def train_alone(group: ClientGroup, local: LocalTraining) -> OwnResults:
        return own_results(experiment, phase, group, initial, local, ranks, client=SGD())

    def compute() -> dict[str, Thresholds]:
        return {
            group.name: appeal.thresholds(group.train, experiment.local, partial(train_alone, group))
            for group in groups
        }

    if cache is None or not appeal.trained:
        return compute()
    name = key(experiment, phase.federation.dataset, network.layout, initial, network.frozen_fingerprint, groups)
    return cached(cache / f"{name}.safetensors", compute, ranks)
