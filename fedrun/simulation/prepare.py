"""The federation of an experiment."""

from __future__ import annotations

from dataclasses import replace

from fedrun.data.federation import ClientIndices, Federation
from fedrun.data.population import flip
from fedrun.experiment.experiment import Experiment
from fedrun.system.errors import InputError


def prepared(experiment: Experiment) -> Federation:
    """The federation of an experiment, with its population and its attackers.

    Raises:
        InputError: the data cannot be used.
    """
    dataset = experiment.dataset.load()
    partitioned = experiment.partition.split(dataset, experiment.seed)
    if not len(partitioned.train) or not bool(partitioned.train.sizes.all()):
        raise InputError(
            f"partition={type(experiment.partition).__name__}: there are {len(partitioned.train)} clients, "
            f"{int((partitioned.train.sizes == 0).sum())} of them without a training sample; allowed: at least one "
            "client, and one sample for each"
        )
    federation = experiment.population.populate(partitioned, experiment.seed)
    federation = experiment.validation.hold_out(federation, experiment.seed)
    attackers = experiment.attack.attackers(len(federation.train), experiment.seed)
    federation = replace(federation, attackers=frozenset(attackers.tolist()))
    flipped = () if federation.flipped is None else federation.flipped.nonzero().flatten().tolist()
    liars = sorted(federation.attackers - set(flipped))  # those flipped already would tell the truth
    if experiment.attack.flips_labels and liars:
        parts = [federation.train[client].numpy() for client in liars]
        targets = flip(federation.dataset.targets, ClientIndices.of(parts), dataset.spec.classes)
        federation = replace(federation, dataset=replace(federation.dataset, targets=targets))
    return federation.pooled() if experiment.strategy.client.pools else federation
