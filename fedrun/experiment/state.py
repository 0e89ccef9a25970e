"""The state of a run between two rounds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import torch

from fedrun.experiment.aggregation.in_training import InTraining
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import ServerState
from fedrun.strategies.vectors import Vectors


@dataclass(frozen=True)
class Totals:
    """Costs summed over the rounds so far.

    Attributes:
        params_up: numbers (float32) sent by clients.
        params_down: numbers sent to clients.
        bytes_up: bytes sent by clients, compressed.
        bytes_down: bytes sent to clients.
        client_samples: samples processed in local training, forward and backward.
        forward_samples: samples that clients processed by forward passes only.
        excluded: uploads left out because they were not finite.
        virtual_seconds: time on the clients' devices; 0 without a clock.
    """

    params_up: int = 0
    params_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    client_samples: int = 0
    forward_samples: int = 0
    excluded: int = 0
    virtual_seconds: float = 0.0

    def __add__(self, other: Totals) -> Totals:
        return Totals(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


@dataclass(frozen=True)
class State:
    """Everything that the next round depends on.

    Attributes:
        round: server updates made so far.
        models: the M ≥ 1 global models of the current phase, each with the tensors that the server keeps for it.
        client_states: the states of the clients that have one.
        totals: costs so far.
        membership: the weight of each model for each client, float64 ``[N, M]`` (one 1 per row if each client belongs
            to a single cluster). A row of zeros: the client has not been assigned yet. None: no clusters (yet).
        finished: the final models ``[P]`` of each phase before the current one.
        training: the clients that train while the server makes its steps; none with synchronous aggregation.
        last_mean: the weighted mean ``[P]`` of the models that the last participants have sent, at first the initial
            model; None: it is not evaluated.
        history: what the rule of participation keeps between rounds, by name, on the CPU.
    """

    round: int
    models: tuple[ServerState, ...]
    client_states: ClientStates
    totals: Totals
    membership: torch.Tensor | None = None
    finished: tuple[tuple[torch.Tensor, ...], ...] = ()
    training: InTraining = field(default_factory=InTraining)
    last_mean: torch.Tensor | None = None
    history: Vectors = field(default_factory=dict)

    @property
    def server(self) -> ServerState:
        """The first model; it is the only one unless clients are clustered."""
        return self.models[0]

    def to(self, device: torch.device | str) -> State:
        """A copy with the models on a device; client states are not moved."""
        models = tuple(server.to(device) for server in self.models)
        finished = tuple(tuple(model.to(device) for model in models) for models in self.finished)
        mean = None if self.last_mean is None else self.last_mean.to(device)
        return replace(self, models=models, finished=finished, training=self.training.to(device), last_mean=mean)
