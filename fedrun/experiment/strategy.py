"""A strategy: a client strategy and a server strategy, checked against each other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fedrun.config.build import option
from fedrun.config.config_class import config_class
from fedrun.config.option_name import chosen
from fedrun.config.options import options
from fedrun.strategies.client import ClientStrategy, is_personal
from fedrun.strategies.client_contract import check_client_attributes
from fedrun.strategies.clustering.base import Clustering
from fedrun.strategies.head_refinement import aggregating
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.post_training import PostTraining
from fedrun.strategies.server import ServerStrategy
from fedrun.strategies.server_contract import check_server_attributes
from fedrun.strategies.vectors import CENTRES, MODEL
from fedrun.system.errors import InputError


@config_class
class Strategy:
    """A client strategy and a server strategy.

    Attributes:
        client: the client strategy, which changes plain local SGD.
        server: the server strategy, which computes the next global state from the uploads.
    """

    client: ClientStrategy
    server: ServerStrategy

    def clusters(self) -> Clustering:
        """The assignment of clients to models: one model for all."""
        return Clustering()

    def afterwards(self) -> PostTraining:
        """The phase after this strategy's rounds: none."""
        return PostTraining()

    @property
    def has_second_phase(self) -> bool:
        """Whether the last rounds of a run belong to :meth:`afterwards`."""
        return self.afterwards().last_rounds(2) > 0

    @property
    def named_client(self) -> str:
        """The client strategy as the command line chooses it."""
        return chosen("strategy/client", self.client)

    @property
    def named_server(self) -> str:
        """The server strategy as the command line chooses it."""
        return chosen("strategy/server", self.server)

    @property
    def named_clustering(self) -> str:
        """The clustering as the command line chooses it."""
        return chosen("strategy/clustering", self.clusters())

    def check(self) -> None:
        """Reject a client and a server strategy that are incompatible."""
        check_client_attributes(self.client)
        check_server_attributes(self.server)
        offers = frozenset({CENTRES}) if self.clusters().mixes else frozenset()

        def fit(one: ClientStrategy, other: ServerStrategy) -> bool:
            check_client_attributes(one)  # of users' options, for a message
            check_server_attributes(other)
            provided = other.sends | other.maintains | offers
            return one.needs <= provided and other.needs <= one.sends

        if missing := self.client.needs - self.server.sends - self.server.maintains - offers:
            allowed = _options("strategy/server", ServerStrategy, lambda other: fit(self.client, other)) or _options(
                "strategy", Strategy, lambda strategy: missing <= {CENTRES} and strategy.clusters().mixes
            )
            raise InputError(
                f"{self.named_client} needs {', '.join(sorted(missing))!r} from the server, which "
                f"{self.named_server} neither sends nor maintains; {allowed or 'choose another client strategy'}"
            )
        if missing := self.server.needs - self.client.sends:
            allowed = _options("strategy/client", ClientStrategy, lambda one: fit(one, self.server))
            raise InputError(
                f"{self.named_server} needs {', '.join(sorted(missing))!r} from the clients, which "
                f"{self.named_client} does not send; {allowed or 'choose another server strategy'}"
            )
        if self.client.sends and not aggregating(self.server).needs:
            allowed = _options("strategy/client", ClientStrategy, lambda one: not one.sends)
            raise InputError(
                f"{self.named_server} uses nothing of what {self.named_client} sends, and no model would be trained; "
                f"{allowed}, or another server strategy, such as fedavg"
            )
        if self.server.sends_own_models and not is_personal(self.client):
            allowed = _options(
                "strategy/client", ClientStrategy, lambda one: is_personal(one) and fit(one, self.server)
            )
            raise InputError(
                f"{self.named_server} sends each client a model of its own, and {self.named_client} evaluates the "
                f"global one; {allowed}"
            )
        if self.server.idle_training is not None and "batch_gradient" in self.client.wants:
            raise InputError(
                f"{self.named_server} counts what idle clients process before they train, and clients of "
                f"{self.named_client} compute further gradients, of a number that is not known before; choose another "
                "client strategy, such as sgd"
            )

    def check_local(self, local: LocalTraining) -> None:
        """Reject settings of local training that the algorithm does not support."""
        self.client.check(local)
        if local.optimizer != "sgd" and (self.client.assumes_sgd or self.clusters().assumes_sgd):
            part = self.named_client if self.client.assumes_sgd else self.named_clustering
            raise InputError(f"local.optimizer={local.optimizer}: {part} is defined by SGD steps alone; allowed: sgd")
        if local.repair_nonfinite and not self.server.refinable:
            raise InputError(
                f"local.repair_nonfinite=true with {self.named_server}, whose next broadcast does not follow from the "
                "repaired model; allowed: false"
            )


def _options(group: str, base: type, fits: Callable[[Any], bool]) -> str:
    """The options of a group that fit, for a message; empty: none.

    Args:
        group: the group.
        base: the class that its options extend; a user's option may extend another one.
        fits: whether an option fits.
    """
    names = []
    for name in options(group):
        with suppress(InputError):  # options that cannot be built alone
            part = option(group, name)
            if isinstance(part, base) and fits(part):
                names.append(name)
    return f"allowed: {group}={', '.join(names)}" if names else ""


@config_class
class ClusteredStrategy(Strategy):
    """A strategy for several global models, with an optional last phase.

    Attributes:
        clustering: the assignment of clients to models.
        post_training: the phase of the last rounds.
    """

    clustering: Clustering
    post_training: PostTraining

    def clusters(self) -> Clustering:
        return self.clustering

    def afterwards(self) -> PostTraining:
        return self.post_training

    def check(self) -> None:
        """Reject strategies that are incompatible with each other or with several models."""
        if self.server.sends_own_models or self.server.idle_training is not None:
            raise InputError(f"{self.named_server} is incompatible with clusters; choose another, such as fedavg")
        super().check()
        if self.client.needs & self.server.maintains - self.server.sends:
            raise InputError(
                f"{self.named_client} needs a server that maintains the states of all clients, and is "
                "incompatible with clusters; choose another client strategy, such as sgd"
            )
        if is_personal(self.client) or not self.client.sends:
            raise InputError(
                f"{self.named_client} does not use a global model, and is incompatible with clusters; choose "
                "another client strategy, such as sgd"
            )
        if self.clustering.mixes and MODEL not in self.client.sends:
            raise InputError(
                f"{self.named_client} sends how far a client has moved from one model, and {self.named_clustering} "
                "adds it to several; choose a client strategy that sends models, such as sgd"
            )
        if self.clustering.mixes and self.server.rows != "none":
            raise InputError(
                f"{self.named_server} uses single models, without the weights that {self.named_clustering} gives to "
                "them; choose another server strategy, such as fedavg"
            )
        least = self.server.least_uploads
        if self.clustering.several and least > 1:
            raise InputError(
                f"{self.named_clustering} with {self.named_server}, which needs at least {least} uploads: a round may "
                "have fewer for a model; choose another server strategy, such as median"
            )
        if self.server.maintains and self.clustering.reassigns:
            raise InputError(
                f"{self.named_server} maintains the states of a model's clients, which change with "
                f"{self.named_clustering}; choose another, such as fedavg"
            )
        if self.clustering.compares_models and MODEL not in self.client.sends:
            raise InputError(
                f"{self.named_client} does not send models, by which {self.named_clustering} tells clients apart; "
                "choose another client strategy, such as sgd"
            )
        self.post_training.check()
