"""A phase: consecutive rounds of a run that train the same kind of model in the same way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch

from fedrun.data.datasets.base import Spec
from fedrun.data.federation import Federation
from fedrun.data.samples import Samples
from fedrun.models.base import ModelConfig, new_network
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.initial_weights import InitialWeights
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.clustering.base import Clustering
from fedrun.strategies.contract import check_counts
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.server import Round, ServerState, ServerStrategy
from fedrun.strategies.server_contract import check_models_for
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError
from fedrun.system.randomness import address


@dataclass(frozen=True, eq=False)
class Phase:
    """Everything that the round loop needs for consecutive rounds of a run.

    Most runs have one phase. A later phase is made from the phase before it and that phase's final models.

    Attributes:
        end: server updates made when the phase ends, counted from the beginning of the run.
        run_rounds: the server updates of the whole run, over all phases.
        seed: the run's seed.
        federation: who holds which samples; its dataset is what this phase's network reads.
        samples: that dataset on its device.
        model: builds the network.
        initial: the weights with which its models begin.
        network: the network; its vector is overwritten.
        client: the client strategy.
        server: the server strategy.
        clustering: which model each client trains.
        local: the settings of local training.
        cohort_size: M, the number of clients per round.
        params_down: numbers that are sent to clients when the phase begins.
        forward_samples: samples that pass through frozen encoders when the phase begins.
        frozen_encoders: number of encoders outside of the network that process each training sample in each batch.
        frozen_tensors: tensors of the trained model that lie outside of the network, by name.
    """

    end: int
    run_rounds: int
    seed: int
    federation: Federation
    samples: Samples
    model: ModelConfig
    initial: InitialWeights
    network: FlatNetwork
    client: ClientStrategy
    server: ServerStrategy
    clustering: Clustering
    local: LocalTraining
    cohort_size: int
    params_down: int = 0
    forward_samples: int = 0
    frozen_encoders: int = 0
    frozen_tensors: Vectors = field(default_factory=dict)

    @cached_property
    def absent(self) -> torch.Tensor:
        """How many of the model's entries each client does not have, int64 ``[N]``.

        Raises:
            InputError: the client strategy cannot work with the model.
        """
        clients = len(self.federation.train)
        absent = self.client.absent(self.network.layout, torch.arange(clients))
        check_counts(self.client, "absent", absent, clients, 0)
        return absent

    @property
    def is_last(self) -> bool:
        """Whether the run ends with this phase."""
        return self.end == self.run_rounds

    def broadcast(self, server: ServerState) -> dict[str, torch.Tensor]:
        """The vectors of a server's broadcast that the clients need."""
        needs = self.client.needs | {MODEL}
        return {name: vector for name, vector in self.server.broadcast(server).items() if name in needs}

    def models_for(self, server: ServerState, clients: torch.Tensor) -> torch.Tensor | None:
        """The models of their own that the server sends to clients (int64 ``[n]``), ``[n, P]``; None: it sends all the
        same.
        """
        models = self.server.models_for(server, clients, self.network.layout)
        if models is not None:
            check_models_for(self.server, models, len(clients), self.network.layout.size)
        return models

    def round(self, index: int, model: int, membership: torch.Tensor | None) -> Round:
        """What the server strategy may know of round 0, 1, .. for a model, given its number and the clients' weights of
        all models, ``[N, M]``; None: there is one model.
        """
        clients = len(self.federation.train)
        if membership is not None:
            nearest = membership.argmax(1)[membership.any(1)]
            clients = int((nearest == model).sum())
        local = self.local
        return Round(index, self.end, clients, self.network.layout, self.seed, local.rate(index), local.momentum)

    def initial_model(self, number: int = 0) -> torch.Tensor:
        """The initial vector ``[P]`` of a model. It is rebuilt, so that no state has to contain it; a network with
        frozen parameters contains its own.
        """
        variant = 0 if self.clustering.same_initialisation else number
        if self.network.initial is not None and not variant:
            return self.network.initial.clone()
        spec, device = self.federation.dataset.spec, self.samples.device
        return build_network(self.model, self.initial, spec, self.seed, device, self.server, variant).vector

    def initial_server(self, number: int = 0) -> ServerState:
        """The server strategy's state of a model before the phase's first round."""
        return self.server.init(self.initial_model(number), self.network.layout, len(self.federation.train))


def build_network(
    model: ModelConfig,
    initial: InitialWeights,
    spec: Spec,
    seed: int,
    device: torch.device,
    server: ServerStrategy,
    variant: int = 0,
) -> FlatNetwork:
    """The network of a model with its initial weights.

    Args:
        model: builds it.
        initial: replaces its random weights.
        spec: spec of the dataset that it reads.
        seed: the run's seed.
        device: where it is.
        server: prepares it.
        variant: which of several initialisations.
    """
    purpose = ("model", variant) if variant else ("model",)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(address(seed, *purpose))
        network = new_network(model, spec)
        initial.load(network, seed)
        server.prepare(network)
        return FlatNetwork(network, device)


def cohort_size(clients_per_round: int | float, clients: int, key: str = "clients_per_round") -> int:
    """M, the number of clients per round.

    Args:
        clients_per_round: an int is M itself; a float up to 1.0 is the share of all clients. The result is rounded up,
            as in TurboSVM-FL: ⌈C N⌉.
        clients: N, the number of clients.
        key: the key that sets the first argument, for the message.

    Raises:
        InputError: M is larger than N.
    """
    if isinstance(clients_per_round, int):
        if clients_per_round > clients:
            raise InputError(
                f"{key}={clients_per_round}: the federation has {clients} clients; "
                f"allowed: 1 to {clients}, or a share such as 0.1"
            )
        return clients_per_round
    return min(clients, max(1, math.ceil(clients_per_round * clients - 1e-9)))
