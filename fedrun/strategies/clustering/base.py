"""What a clustering is: it says which of several global models each client trains and is served by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.clustering.context import TrainingContext

Measure = Callable[[int], "torch.Tensor"]
"""Computes a small tensor on the CPU from a client's number, of the same shape for all clients."""


@dataclass(frozen=True)
class ClusteringRound:
    """A round that is about to begin.

    Attributes:
        index: t, 0 in the first round.
        cohort: its participants, int64 ``[C]``.
        models: ``[P]`` each.
        membership: ``[N, M]``, so far; zeros for clients that have not been assigned.
        client_states: before the round.
        query: measures clients (int64 ``[n]``, n ≥ 1), each on the rank that holds its state; the results are stacked.
    """

    index: int
    cohort: torch.Tensor
    models: Sequence[torch.Tensor]
    membership: torch.Tensor
    client_states: ClientStates
    query: Callable[[torch.Tensor, Measure], torch.Tensor]


@dataclass(frozen=True)
class Assignment:
    """Who belongs where.

    Attributes:
        membership: float64 ``[N, M]``, as in :attr:`fedrun.experiment.state.State.membership`.
        forward_samples: what clients have processed by forward passes to find out.
    """

    membership: torch.Tensor
    forward_samples: int = 0


@dataclass(frozen=True)
class FirstUpdate:
    """What a client's first training tells of it.

    Attributes:
        model: ``[P]``, as it was sent.
        steps: SGD steps made.
        rate: η of that round.
    """

    model: torch.Tensor
    steps: int
    rate: float


@config_class
class Clustering:
    """One model for everybody; the options that have several extend this class.

    Attributes:
        offers: names that clients are sent beside what the server half broadcasts.
        downloads_all: whether a participant receives all models, to choose among them.
        keeps_last: whether clients remember the model that they have last sent.
        infers: whether clients are clustered by what all of them send after a first round of one common model.
        reassigns: whether a client may belong to another model in a later round.
    """

    offers: ClassVar[frozenset[str]] = frozenset()
    downloads_all: ClassVar[bool] = False
    stores_last_upload: ClassVar[bool] = False
    infers: ClassVar[bool] = False
    reassigns: ClassVar[bool] = False

    @property
    def several(self) -> bool:
        """Whether there may be more than one model."""
        return False

    @property
    def initial_models(self) -> int:
        """M before the first round, where :meth:`before` assigns nobody."""
        return 1

    @property
    def same_initialisation(self) -> bool:
        """Whether all models start alike."""
        return True

    def reports(self, classes: int) -> int:
        """How many numbers every client sends once, for :meth:`before`."""
        return 0

    def before(self, context: TrainingContext) -> torch.Tensor | None:
        """The membership ``[N, M]`` of all clients before the first round; None: nobody is assigned yet.

        Raises:
            InputError: the clients cannot be clustered this way.
        """
        return None

    def estimate(self, context: TrainingContext, initial: torch.Tensor, sent: FirstUpdate) -> torch.Tensor:
        """What a client's first model tells of its labels, float64 ``[classes]``, where :attr:`infers`.

        Args:
            context: where the clients train.
            initial: ``[P]``, the common model that all have trained.
            sent: what the client has sent.
        """
        raise NotImplementedError

    def infer(self, context: TrainingContext, estimates: torch.Tensor) -> torch.Tensor:
        """The membership ``[N, M]`` of all clients after the first round, where :attr:`infers`.

        Args:
            context: where the clients train.
            estimates: :meth:`estimate` of all clients, float64 ``[N, classes]``.
        """
        raise NotImplementedError

    def assign(self, context: TrainingContext, round: ClusteringRound) -> Assignment:
        """The membership in a round, of whose participants each must be assigned."""
        return Assignment(round.membership)


@config_class
class SeveralModels(Clustering):
    """K models from the first round on; in every round its participants are assigned anew.

    Attributes:
        clusters: K ≥ 1 models.
    """

    clusters: Annotated[int, Ge(1)]

    reassigns: ClassVar[bool] = True

    @property
    def several(self) -> bool:
        return True

    @property
    def initial_models(self) -> int:
        return self.clusters


def reassigned(round: ClusteringRound, clusters: torch.Tensor) -> torch.Tensor:
    """The membership ``[N, M]`` in which a round's participants belong to these clusters, int64 ``[C]``."""
    membership = round.membership.clone()
    membership[round.cohort] = one_hot(clusters, len(round.models))
    return membership


def one_hot(clusters: torch.Tensor, count: int) -> torch.Tensor:
    """The membership, float64 ``[n, count]``, of clients that belong to one cluster each (int64 ``[n]``)."""
    return torch.nn.functional.one_hot(clusters, count).double()
