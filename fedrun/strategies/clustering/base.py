"""The base of clusterings: they assign clients to several global models."""

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
"""Maps a client's number to a small CPU tensor, which has the same shape for all clients."""


@dataclass(frozen=True)
class ClusteringRound:
    """The inputs of an assignment at the beginning of a round.

    Attributes:
        index: t, 0 in the first round.
        cohort: the participants, int64 ``[C]``.
        models: the M global models, ``[P]`` each.
        membership: the current membership, ``[N, M]``; zeros for clients that have not been assigned yet.
        client_states: the client states before the round.
        query: computes a measure for clients (int64 ``[n]``, n ≥ 1) on the rank that holds their states, and stacks the
            results.
    """

    index: int
    cohort: torch.Tensor
    models: Sequence[torch.Tensor]
    membership: torch.Tensor
    client_states: ClientStates
    query: Callable[[torch.Tensor, Measure], torch.Tensor]

    def passes(self, clients: torch.Tensor) -> torch.Tensor:
        """The forward passes of each client, int64 ``[N]``, if these (int64 ``[n]``) test all models."""
        counts = torch.zeros(len(self.membership), dtype=torch.int64)
        counts[clients] = len(self.models)
        return counts


@dataclass(frozen=True)
class Assignment:
    """The weights of the models for the clients in a round, and what it cost to find them.

    Attributes:
        membership: float64 ``[N, M]``, as in :attr:`fedrun.experiment.state.State.membership`.
        forward_passes: forward passes over its samples that each client made, int64 ``[N]``; None: no client made any.
    """

    membership: torch.Tensor
    forward_passes: torch.Tensor | None = None


@config_class
class Clustering:
    """A single model for all clients; the options with several models extend this class.

    Attributes:
        downloads_all: whether a participant receives all models and chooses one of them.
        stores_last_upload: whether the client state contains the model that the client sent last.
        needs_classes: whether it works for a classification only.
        mixes: whether a client's upload counts for several models, with fractions of its weight; then clients can
            receive all models, as ``centres``.
        reports_labels: whether each client sends a number per class once, for :meth:`before`.
        assumes_sgd: whether clients are distinguished by their displacement under SGD; then ``local.optimizer`` must be
            ``sgd``.
    """

    needs_classes: ClassVar[bool] = False
    downloads_all: ClassVar[bool] = False
    stores_last_upload: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    reports_labels: ClassVar[bool] = False

    @property
    def assumes_sgd(self) -> bool:
        return False

    @property
    def infers(self) -> bool:
        """Whether clients are clustered by the models that all of them send after a first round with one model."""
        return type(self).estimate is not Clustering.estimate

    @property
    def compares_models(self) -> bool:
        """Whether the server assigns clients by the models that they send."""
        return self.infers or self.stores_last_upload

    @property
    def reassigns(self) -> bool:
        """Whether a client may be assigned to another model in a later round."""
        return type(self).assign is not Clustering.assign

    @property
    def several(self) -> bool:
        """Whether there may be more than one model."""
        return False

    @property
    def initial_models(self) -> int:
        """M before the first round, if :meth:`before` returns None."""
        return 1

    @property
    def same_initialisation(self) -> bool:
        """Whether all models have the same initial parameters."""
        return True

    def before(self, context: TrainingContext) -> torch.Tensor | None:
        """The membership ``[N, M]`` of all clients before the first round; None: no client is assigned yet.

        Raises:
            InputError: these clients cannot be clustered by this method.
        """
        return None

    def estimate(
        self, context: TrainingContext, initial: torch.Tensor, model: torch.Tensor, steps: int
    ) -> torch.Tensor:
        """The estimate of a client's labels from its first model, float64 ``[classes]``, if :attr:`infers`.

        Args:
            context: the clients and their samples.
            initial: the common model that all clients trained, ``[P]``.
            model: the client's upload, ``[P]``.
            steps: number of its SGD steps.
        """
        raise NotImplementedError

    def infer(self, context: TrainingContext, estimates: torch.Tensor) -> torch.Tensor:
        """The membership ``[N, M]`` of all clients after the first round, if :attr:`infers`.

        Args:
            context: the clients and their samples.
            estimates: :meth:`estimate` of all clients, float64 ``[N, classes]``.
        """
        raise NotImplementedError

    def assign(self, context: TrainingContext, round: ClusteringRound) -> Assignment:
        """The membership in a round; all of its participants must be assigned."""
        return Assignment(round.membership)


@config_class
class SeveralModels(Clustering):
    """K models from the first round on; the participants of each round are assigned again.

    Attributes:
        clusters: K ≥ 1 models.
    """

    clusters: Annotated[int, Ge(1)]

    several: ClassVar[bool] = True

    @property
    def initial_models(self) -> int:
        return self.clusters


def reassigned(round: ClusteringRound, clusters: torch.Tensor) -> torch.Tensor:
    """The membership ``[N, M]`` after a round's participants were assigned to clusters (int64 ``[C]``)."""
    membership = round.membership.clone()
    membership[round.cohort] = one_hot(clusters, len(round.models))
    return membership


def one_hot(clusters: torch.Tensor, count: int) -> torch.Tensor:
    """The membership, float64 ``[n, count]``, of clients that belong to one cluster each (int64 ``[n]``)."""
    return torch.nn.functional.one_hot(clusters, count).double()
