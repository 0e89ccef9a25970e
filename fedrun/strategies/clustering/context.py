"""The data that a clustering can use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.data.federation import ClientIndices
from fedrun.data.samples import Samples
from fedrun.data.tasks.base import SampleResults
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.inference import FORWARD_BATCH, evaluate
from fedrun.strategies.local_training import LocalTraining


@dataclass(frozen=True)
class TrainingContext:
    """The clients, their samples and the settings of local training; constant over all rounds.

    Attributes:
        network: the network; clusterings may overwrite its parameters.
        samples: the dataset on its device.
        clients: the training samples of each client.
        local: the settings of local training.
        seed: the seed of every random choice.
    """

    network: FlatNetwork
    samples: Samples
    clients: ClientIndices
    local: LocalTraining
    seed: int

    def results(self, model: torch.Tensor, client: int) -> SampleResults:
        """The results of a model ``[P]`` on the training samples of a client."""
        self.network.load(model)
        return evaluate(self.network, self.samples, self.clients[client], FORWARD_BATCH)
