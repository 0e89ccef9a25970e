"""The groups of clients that are evaluated individually."""

from __future__ import annotations

from dataclasses import dataclass

from fedrun.data.federation import ClientIndices, Federation

SEEN = "clients"
"""The name of the clients that cohorts are drawn from, in the metrics."""

UNSEEN = "unseen"
"""The name of the clients that never take part in training."""


@dataclass(frozen=True)
class ClientGroup:
    """Some clients and their samples.

    Attributes:
        name: their name in the metrics.
        train: training samples of each client.
        test: test samples of each client; None: clients have no test samples.
    """

    name: str
    train: ClientIndices
    test: ClientIndices | None


def client_groups(federation: Federation) -> list[ClientGroup]:
    """The clients that train, and the unseen ones if there are any."""
    seen = ClientGroup(SEEN, federation.train, federation.client_test)
    if federation.unseen is None:
        return [seen]
    return [seen, ClientGroup(UNSEEN, federation.unseen.train, federation.unseen.test)]
