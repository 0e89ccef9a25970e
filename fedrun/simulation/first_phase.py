"""The first phase of a run."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedrun.data.datasets.base import Dataset, Symbols
from fedrun.data.federation import Federation
from fedrun.data.samples import Samples
from fedrun.experiment.checks import check_client_tests
from fedrun.experiment.experiment import Experiment
from fedrun.models.trial import check_network
from fedrun.simulation.data_checks import check_colluding, check_least_uploads
from fedrun.simulation.model_checks import check_model
from fedrun.strategies.client_contract import check_masks
from fedrun.strategies.phase import Phase, build_network, cohort_size
from fedrun.training.batches import smallest_batch


def _cut_to_longest(dataset: Dataset) -> Dataset:
    """A dataset whose batches of padded texts are cut to their longest text."""
    return dataset if dataset.spec.padding is None else replace(dataset, encoding=Symbols(dataset.spec.padding))


def first_phase(experiment: Experiment, federation: Federation, device: torch.device) -> Phase:
    """The first phase of a run; most runs have no other.

    Raises:
        InputError: the strategy or the model does not fit the federation.
    """
    strategy, dataset, clients = experiment.strategy, federation.dataset, len(federation.train)
    cohort = cohort_size(1 if experiment.population.pooled else experiment.clients_per_round, clients)
    check_least_uploads(experiment, clients, cohort)
    experiment.aggregation.check_clients(clients)
    strategy.afterwards().check_clients(clients)
    experiment.model.check(dataset.spec)
    network = build_network(
        experiment.model, experiment.initial, dataset.spec, experiment.seed, device, strategy.server
    )
    smallest = 2
    if not experiment.privacy.noises_steps:  # which rejects all layers that mix samples
        smallest = min(smallest_batch(federation.train.sizes, experiment.local.batch_size), 2)
    check_network(network.network, dataset.spec, experiment.chosen("model"), smallest)
    check_masks(strategy.client, network.layout, range(experiment.local.epochs or 1))
    check_client_tests(experiment, federation.client_test is not None)
    check_model(experiment, network.layout)
    check_colluding(experiment, federation, cohort)
    phase = Phase(
        end=experiment.first_rounds,
        run_rounds=experiment.rounds,
        seed=experiment.seed,
        federation=federation,
        samples=Samples.of(_cut_to_longest(dataset) if experiment.model.reads_any_length else dataset, device),
        model=experiment.model,
        initial=experiment.initial,
        network=network,
        client=strategy.client,
        server=strategy.server,
        clustering=strategy.clusters(),
        local=experiment.local,
        cohort_size=cohort,
        params_down=0 if federation.is_pooled else clients * network.frozen_size,
    )
    _ = phase.absent  # a model that the client strategy cannot work with is rejected before the first round
    return phase
