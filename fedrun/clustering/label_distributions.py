"""FedConcat's first stage: cluster clients by their label distributions (Diao, Li, He, AAAI 2024, arXiv 2312.06290)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from fedrun.clustering.base import Clustering, Place
from fedrun.clustering.kmeans import clustered
from fedrun.randomness import numpy_generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LabelDistributions(Clustering):
    """K-means on v_k = (n_k1, .., n_kC) / n_k, which every client reports once, before the first round.

    Attributes:
        clusters: K ≥ 1; None: where the curve of K-means inertias bends most.
        max_clusters: the largest K that is considered for that.
        balanced: limit the clusters' sizes to 1.2 of the mean.
        epsilon: ε > 0: what clients report is made ε-differentially private by Laplace noise of scale 1/ε in every
            coordinate (DP-FedConcat); None: no noise. One more sample moves v_k by at most 1 in L1.
    """

    clusters: Annotated[int, Ge(1)] | None
    max_clusters: Annotated[int, Ge(1)]
    balanced: bool
    epsilon: Annotated[float, Gt(0)] | None

    @property
    def several(self) -> bool:
        return True

    def reports(self, classes: int) -> int:
        return classes

    def before(self, place: Place) -> torch.Tensor:
        vectors = self.reported(place)
        return clustered(vectors, self.clusters, self.max_clusters, self.balanced, place.seed)

    def reported(self, place: Place) -> torch.Tensor:
        """v_k as the clients report them, float64 ``[N, C]``."""
        counts = place.clients.class_counts(place.samples.targets.cpu(), place.network.layout.classes).double()
        shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
        if self.epsilon is None:
            return shares
        noise = numpy_generator(place.seed, "clusters/privacy").laplace(0.0, 1 / self.epsilon, tuple(shares.shape))
        return shares + torch.from_numpy(noise)
