"""The models that the clients of a finished run use: their own, or those of their clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedrun.config.build import option
from fedrun.data.federation import Federation
from fedrun.experiment.experiment import Experiment
from fedrun.models.initial_weights import InitialWeights
from fedrun.models.lora_layout import merged
from fedrun.runs import checkpoint as checkpoints
from fedrun.runs.checkpoint import Identity
from fedrun.runs.folder import CHECKPOINT, CLIENT_STATES
from fedrun.runs.saved_model import network_of
from fedrun.simulation.simulation import Simulation
from fedrun.strategies.client import is_personal
from fedrun.system.errors import InputError


class ClientModels:
    """The clients' models, made from the state in a run's checkpoint and the clients' data.

    Args:
        experiment: the run's experiment.
        federation: its clients and their samples.
        folder: the run's folder.
        summary: the run's summary.

    Raises:
        InputError: all clients use one model, the data cannot be loaded, or the checkpoint cannot be read.
    """

    def __init__(
        self, experiment: Experiment, federation: Federation, folder: Path, summary: Mapping[str, Any]
    ) -> None:
        strategy = experiment.strategy
        if strategy.has_second_phase or not (is_personal(strategy.client) or strategy.clusters().several):
            raise InputError(f"{folder}: its clients have no models of their own; network() is the model that all use")
        if experiment.record.hash != summary.get("config_hash"):
            raise InputError(f"{folder}: was run by another version of fedrun, in which a key had another meaning")
        hardware = replace(option("hardware", "cpu"), executor="in_process")  # wherever the run was computed
        on_cpu = replace(experiment, hardware=hardware)
        # the checkpoint has all weights but frozen ones, for which the run that was the beginning is read
        self._simulation = Simulation(replace(on_cpu, initial=InitialWeights()), federation=federation)
        if self._simulation.network.frozen:
            self._simulation = Simulation(on_cpu, federation=federation)
        self._path = folder / CHECKPOINT
        identity = Identity(
            summary["config_hash"],
            summary["seed"],
            self._simulation.dataset.fingerprint,
            summary.get("appeal", ""),
            self._simulation.network.frozen_fingerprint,
            summary.get("initial", ""),
        )
        initial, store = self._simulation.initial(), self._simulation.store.reader(folder / CLIENT_STATES)
        self._state = checkpoints.load(self._path, identity, initial, store, "restore it").state
        names = map(federation.train.name, range(len(federation.train)))
        self._numbers = {name: number for number, name in enumerate(names)}

    def network(self, client: str) -> torch.nn.Sequential:
        """The network by which a client is evaluated, in evaluation mode.

        Args:
            client: the client's name, as in ``clients.parquet``.

        Raises:
            InputError: there is no such client, or it has not been assigned to a cluster.
        """
        if client not in self._numbers:
            names = list(self._numbers)
            raise InputError(f"client={client!r}: no training client of the run; allowed: {', '.join(names[:3])}, ..")
        phase = self._simulation.phase(self._state)
        models = self._simulation.evaluator(self._state).models_of(self._state, self._numbers[client])
        if len(models) > 1:
            raise InputError(f"client={client!r}: took part in no round, so it has no cluster; name one: network(0)")
        tensors = merged(phase.network.network, phase.network.tensors(models[0]))
        return network_of(phase.model, phase.federation.dataset.spec, tensors, self._path)
