"""Where a run stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from fedrun.execution.choice import ExecutorTimings
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.server import ServerState


@dataclass(frozen=True)
class Totals:
    """Costs summed over the rounds so far.

    Attributes:
        params_up: numbers (float32) sent by clients.
        params_down: numbers sent to clients.
        client_samples: samples processed in local training, forward and backward.
        forward_samples: samples that clients processed by forward passes only.
        excluded: uploads left out because they were not finite.
    """

    params_up: int = 0
    params_down: int = 0
    client_samples: int = 0
    forward_samples: int = 0
    excluded: int = 0

    def embedded(self, samples: int) -> Totals:
        """With so many more samples processed by forward passes only."""
        return replace(self, forward_samples=self.forward_samples + samples)


@dataclass(frozen=True)
class State:
    """All that the next round depends on.

    Attributes:
        round: server updates made so far.
        models: the M ≥ 1 global models, each with what else the server carries for it.
        memory: what clients remember.
        totals: costs so far.
        membership: what each model counts for each client, float64 ``[N, M]`` (one 1 per row where clients belong to a
            single cluster); a row of zeros: the client has not been assigned yet. None: there are no clusters (yet).
        frozen: the models ``[P]`` of the first stage, whose encoders no longer change, once the second has begun.
        pace: what a trial of executors has found so far (``hardware.executor=auto``); it decides who computes the next
            round, which can change its result by rounding.
    """

    round: int
    models: tuple[ServerState, ...]
    memory: ClientStates
    totals: Totals
    membership: torch.Tensor | None = None
    frozen: tuple[torch.Tensor, ...] = ()
    timings: ExecutorTimings = ()

    @property
    def server(self) -> ServerState:
        """The first of the models, which is the only one unless clients are clustered."""
        return self.models[0]

    def to(self, device: torch.device | str) -> State:
        """The same state with its models on a device; what clients remember stays where it is."""
        models = tuple(server.to(device) for server in self.models)
        return replace(self, models=models, frozen=tuple(model.to(device) for model in self.frozen))
