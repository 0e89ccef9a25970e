"""The federation of an experiment: its data, divided among clients, with what its settings change."""

from __future__ import annotations

from dataclasses import replace

from fedrun.data.federation import Federation
from fedrun.experiment.experiment import Experiment
from fedrun.simulation.data_checks import check_divided, check_loaded, check_partitioned
from fedrun.uploads.attacks.contract import check_poisoned


def prepare_federation(experiment: Experiment) -> Federation:
    """The federation of an experiment, with its population and its attackers.

    Raises:
        InputError: the data cannot be used.
    """
    dataset = experiment.dataset.load()
    check_loaded(experiment.chosen("dataset"), dataset)
    partition, population = experiment.chosen("partition"), experiment.population
    partitioned = experiment.partition.split(dataset, experiment.seed)
    check_partitioned(partition, partitioned)
    check_divided(partition, partitioned, experiment)
    federation = population.populate(partitioned, experiment.seed)
    federation = experiment.validation.hold_out(federation, experiment.seed)
    attackers = experiment.attack.attackers(len(federation.train), experiment.seed)
    federation = replace(federation, attackers=frozenset(attackers.tolist()))
    if federation.attackers:
        poisoned = experiment.attack.poisoned(federation, experiment.seed)
        check_poisoned(experiment.attack, poisoned, federation)
        federation = poisoned
    return federation.pooled() if population.pooled else federation
