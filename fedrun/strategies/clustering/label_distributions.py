"""FedConcat's first phase: cluster clients by their label distributions (Diao, Li, He, AAAI 2024, arXiv 2312.06290)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Gt

from fedrun.config.config_class import config_class
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.strategies.clustering.label_clusters import LabelClusters, evenly
from fedrun.system.randomness import numpy_generator


@config_class
class LabelDistributions(LabelClusters):
    """K-means on v_k = (n_k1, .., n_kC) / n_k, which every client reports once, before the first round.

    With ``by=labels``, a client has the labels whose reported share is at least 1/(2C), half of a label's share if all
    C were equally frequent.

    Attributes:
        epsilon: ε > 0: the reports are made ε-differentially private by Laplace noise of scale 1/ε in every
            coordinate (DP-FedConcat); None: no noise. One more sample moves v_k by at most 1 in L1.
    """

    epsilon: Annotated[float, Gt(0)] | None

    reports_labels: ClassVar[bool] = True

    def before(self, context: TrainingContext) -> torch.Tensor:
        reported = self.reported(context)
        if self.by == "labels":
            reported = evenly(self.labels(reported))
        return self.membership(reported, context.seed)

    def labels(self, reported: torch.Tensor) -> torch.Tensor:
        """Which labels clients have that report these v_k ``[N, C]``, bool ``[N, C]``."""
        return reported >= 1 / (2 * reported.shape[1])

    def reported(self, context: TrainingContext) -> torch.Tensor:
        """v_k as the clients report them, float64 ``[N, C]``."""
        counts = context.clients.class_counts(context.samples.targets.cpu(), context.samples.classes).double()
        shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
        if self.epsilon is None:
            return shares
        noise = numpy_generator(context.seed, "clusters/privacy").laplace(0.0, 1 / self.epsilon, tuple(shares.shape))
        return shares + torch.from_numpy(noise)
