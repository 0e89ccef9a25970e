"""A strategy: a client side and a server side, checked against each other."""

from __future__ import annotations

from fedrun.config.config_class import config_class
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.clustering.base import Clustering
from fedrun.strategies.post_training import PostTraining
from fedrun.strategies.server import ServerStrategy
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError


@config_class
class Strategy:
    """A client half and a server half.

    Attributes:
        client: how local training differs from plain SGD.
        server: how uploads become the next global state.
    """

    client: ClientStrategy
    server: ServerStrategy

    def clusters(self) -> Clustering:
        """Who trains which model: everybody the one there is."""
        return Clustering()

    def afterwards(self) -> PostTraining:
        """The stage after the rounds of the halves: none."""
        return PostTraining()

    def check(self) -> None:
        """Refuse halves that do not fit together."""
        client, server = type(self.client).__name__, type(self.server).__name__
        if missing := ", ".join(sorted(self.client.needs - self.server.broadcasts - self.clusters().offers)):
            raise InputError(
                f"strategy.client={client} needs {missing!r} from the server, which strategy.server={server} does not "
                "send; choose the server half made for it"
            )
        if missing := ", ".join(sorted(self.client.relies_on - self.server.maintains)):
            raise InputError(
                f"strategy.client={client} relies on the mean {missing!r} of all clients, which "
                f"strategy.server={server} does not use; choose the server half made for it"
            )
        if missing := ", ".join(sorted(self.server.needs - self.client.sends)):
            raise InputError(
                f"strategy.server={server} needs {missing!r} from the clients, which strategy.client={client} does not "
                "send; choose the client half made for it"
            )
        if self.client.keeps_head and self.server.changes_heads:
            raise InputError(
                f"strategy.client={client} keeps the head on the clients, and strategy.server={server} changes the "
                "global one, which nobody would use; choose another server half, such as fedavg"
            )


@config_class
class ClusteredStrategy(Strategy):
    """Two halves for several global models, and a stage that may follow.

    Attributes:
        clustering: who trains which model.
        post_training: what is trained in the last rounds, on top of the models.
    """

    clustering: Clustering
    post_training: PostTraining

    def clusters(self) -> Clustering:
        return self.clustering

    def afterwards(self) -> PostTraining:
        return self.post_training

    def check(self) -> None:
        """Refuse halves that do not fit together, or not with several models."""
        super().check()
        client, server = type(self.client).__name__, type(self.server).__name__
        if self.client.relies_on:
            raise InputError(
                f"strategy.client={client} relies on a server that follows all clients, and does not go with "
                "clusters; choose another client half, such as sgd"
            )
        if self.client.personal is not None or self.client.pools or not self.client.communicates:
            raise InputError(
                f"strategy.client={client} is not served by a global model, and does not go with clusters; choose "
                "another client half, such as sgd"
            )
        if self.server.fusion is not None:
            raise InputError(f"strategy.server={server} does not go with clusters; choose another, such as fedavg")
        if self.server.maintains and self.clustering.reassigns:
            raise InputError(
                f"strategy.server={server} follows what a model's clients remember, and with "
                f"strategy.clustering={type(self.clustering).__name__} these change; choose another, such as fedavg"
            )
        if (self.clustering.infers or self.clustering.stores_last_upload) and MODEL not in self.client.sends:
            raise InputError(
                f"strategy.client={client} does not send models, by which "
                f"strategy.clustering={type(self.clustering).__name__} tells clients apart; choose another client "
                "half, such as sgd"
            )
        self.post_training.check()
