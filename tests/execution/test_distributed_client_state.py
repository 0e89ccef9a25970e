"""Client states on the leader, with ranks that are plain objects."""

from __future__ import annotations

import torch

from fedrun.execution.distributed_client_state import DistributedClientStates
from fedrun.execution.ranks import Ranks
from fedrun.strategies.client_state import ClientStates, Vectors


class Leader(Ranks):
    """The leader of three ranks; ``parts`` are what they send."""

    def __init__(self) -> None:
        super().__init__(0, 3)
        self.parts: list[dict[int, Vectors]] = []

    def scatter(self, parts):
        return parts[0]

    def gather(self, value):
        return [value, *self.parts]


def test_a_client_that_moves_between_ranks_keeps_its_state():
    """Whichever of the two ranks is the first: one drops it, the other adds it."""
    states = {client: {"v": torch.full((2,), float(client))} for client in range(6)}
    for first_drops in (False, True):
        ranks = Leader()
        distributed = DistributedClientStates(ranks, torch.tensor([0, 0, 1, 1, 2, 2]))
        held = ClientStates(states)
        own = distributed.scatter(held)
        assert own.held.keys() == {0, 1}
        moved, changed = {"v": torch.tensor([7.0, 7.0])}, {"v": torch.tensor([8.0, 8.0])}
        added, dropped = {4: moved, 3: changed}, {4: {}, 5: {}}
        ranks.parts = [dropped, added] if first_drops else [added, dropped]
        everything = distributed.gather(own).held
        assert everything.keys() == {0, 1, 2, 3, 4}  # client 5 has no state any more
        assert torch.equal(everything[4]["v"], moved["v"]) and torch.equal(everything[3]["v"], changed["v"])
        assert torch.equal(everything[2]["v"], states[2]["v"])
