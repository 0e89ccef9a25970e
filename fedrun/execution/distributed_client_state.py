"""What clients remember, scattered over ranks: brought together for a checkpoint, dealt out again after one.

A checkpoint of several ranks is a checkpoint of one process. So a run can be continued by any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from fedrun.execution.ranks import Ranks
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.vectors import Vectors


class DistributedClientStates:
    """Moves memories between the leader and the ranks where the clients are at home.

    The leader holds a copy of what the other ranks' clients remember, as it was at the newest checkpoint; only what has
    changed since travels.

    Args:
        ranks: who takes part.
        homes: every client's rank, int64 ``[N]``.
        keep: makes a lasting copy of what one client remembers.
    """

    def __init__(self, ranks: Ranks, client_to_rank: torch.Tensor, keep: Callable[[Vectors], Vectors]) -> None:
        self._ranks = ranks
        self._client_to_rank = client_to_rank
        self._keep = keep
        self._elsewhere: dict[int, Vectors] = {}  # the leader's copies
        self._known: Mapping[int, Vectors] = {}  # this rank's, as the leader has them

    def deal(self, whole: ClientStates) -> ClientStates:
        """The part of the leader's memory that is this rank's; the other ranks give an empty one."""
        parts: list[dict[int, Vectors]] | None = None
        if self._ranks.leads:
            parts = [{} for _ in range(self._ranks.count)]
            for client, vectors in whole.held.items():
                parts[int(self._client_to_rank[client])][client] = vectors
            self._elsewhere = {client: vectors for part in parts[1:] for client, vectors in part.items()}
            self._ranks.scatter([{}, *parts[1:]])
            own: Mapping[int, Vectors] = parts[0]
        else:
            own = {client: self._keep(vectors) for client, vectors in self._ranks.scatter(parts).items()}
        self._known = own
        return replace(whole, held=own)

    def collect(self, own: ClientStates) -> ClientStates:
        """The whole memory for the leader, this rank's part for the others."""
        changed: dict[int, Vectors] = {}
        if not self._ranks.leads:
            changed = {
                client: vectors for client, vectors in own.held.items() if vectors is not self._known.get(client)
            }
            changed |= {client: {} for client in self._known.keys() - own.held.keys()}
        self._known = own.held
        for part in self._ranks.gather(changed):
            for client, vectors in part.items():
                self._elsewhere.pop(client, None)
                if vectors:
                    self._elsewhere[client] = self._keep(vectors)
        return replace(own, held={**self._elsewhere, **own.held})
