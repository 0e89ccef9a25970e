"""Where a run stands."""

from __future__ import annotations

from dataclasses import dataclass

from fedrun.client_memory import ClientMemory
from fedrun.strategies.base import ServerState


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


@dataclass(frozen=True)
class State:
    """All that the next round depends on.

    Attributes:
        round: server updates made so far.
        server: the global model and what else the server carries.
        memory: what clients remember.
        totals: costs so far.
    """

    round: int
    server: ServerState
    memory: ClientMemory
    totals: Totals
