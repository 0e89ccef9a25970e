"""The client states of a run on several ranks: gathered for a checkpoint, scattered after one.

A checkpoint of several ranks equals a checkpoint of one process, so any number of ranks can continue a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from fedrun.execution.ranks import Ranks
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.vectors import Vectors


class DistributedClientStates:
    """Moves client states between the leader and the ranks that train the clients.

    The leader holds a copy of the other ranks' client states as of the newest checkpoint. Only states that have changed
    since then are sent.

    Args:
        ranks: the processes of the run.
        client_to_rank: the rank that trains each client, int64 ``[N]``.
    """

    def __init__(self, ranks: Ranks, client_to_rank: torch.Tensor) -> None:
        self._ranks = ranks
        self._client_to_rank = client_to_rank
        self._remote: dict[int, Vectors] = {}  # the leader's copies of the other ranks' states
        self._sent: Mapping[int, Vectors] = {}  # this rank's states, as the leader holds them

    def scatter(self, states: ClientStates) -> ClientStates:
        """Return this rank's part of the leader's client states. The other ranks pass empty ones."""
        parts: list[dict[int, Vectors]] | None = None
        if self._ranks.is_leader:
            parts = [{} for _ in range(self._ranks.count)]
            for client, vectors in states.held.items():
                parts[int(self._client_to_rank[client])][client] = vectors
            self._remote = {client: vectors for part in parts[1:] for client, vectors in part.items()}
            self._ranks.scatter([{}, *parts[1:]])
            local: Mapping[int, Vectors] = parts[0]
        else:
            local = {client: states.keep(vectors) for client, vectors in self._ranks.scatter(parts).items()}
        self._sent = local
        return replace(states, held=local)

    def gather(self, states: ClientStates) -> ClientStates:
        """All client states on the leader, this rank's part on the other ranks."""
        changed: dict[int, Vectors] = {}
        if not self._ranks.is_leader:
            changed = {
                client: vectors for client, vectors in states.held.items() if vectors is not self._sent.get(client)
            }
            changed |= {client: {} for client in self._sent.keys() - states.held.keys()}
        self._sent = states.held
        parts = self._ranks.gather(changed)
        for client in {client for part in parts for client in part}:
            self._remote.pop(client, None)
        for part in parts:  # a client that has moved to another rank is dropped by the one and added by the other
            self._remote |= {client: states.keep(vectors) for client, vectors in part.items() if vectors}
        return replace(states, held={**self._remote, **states.held})
