"""Clusters of clients by their labels: K-means on label distributions, or on sets of labels."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.config.marks import NoEffect
from fedrun.strategies.clustering.base import Clustering
from fedrun.strategies.clustering.kmeans import clustered


@config_class
class LabelClusters(Clustering):
    """K-means on one vector v_k ``[C]`` per client, which describes its labels.

    Where clients have few labels drawn at random, as in #C = 2, K-means has many solutions of nearly the same inertia:
    small errors of the shares, or other initial centres, lead to other clusters. The set of a client's labels can be
    inferred exactly, and then the clusters equal those of the true sets; a single error can lead to other clusters.

    Attributes:
        clusters: K ≥ 1; None: where the curve of K-means inertias bends most.
        max_clusters: the largest K considered for ``clusters=null``.
        balanced: limit the clusters' sizes to 1.2 times the mean size.
        by: ``shares``: v_k is the client's label distribution (the paper); ``labels``: v_kc is 1/m for each of the m
            labels that the client has, otherwise 0.
    """

    clusters: Annotated[int, Ge(1)] | None
    max_clusters: Annotated[int, Ge(1), NoEffect("clusters")]
    balanced: bool
    by: Literal["shares", "labels"]

    several: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    def membership(self, vectors: torch.Tensor, seed: int) -> torch.Tensor:
        """The membership, float64 ``[N, M]``, of clients with these v_k, float64 ``[N, C]``."""
        return clustered(vectors, self.clusters, self.max_clusters, self.balanced, seed)


def evenly(has: torch.Tensor) -> torch.Tensor:
    """v_k, float64 ``[N, C]``, of clients with these labels, bool ``[N, C]``; 1/C if no label is known."""
    known = has.double()
    known[~has.any(1)] = 1
    return known / known.sum(1, keepdim=True)
