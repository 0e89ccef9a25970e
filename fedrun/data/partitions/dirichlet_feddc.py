"""Label skew: every client has its own class prior, and clients draw in random turns."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.class_sampling import draw_counts, log_dirichlet
from fedrun.data.partitions.index_groups import lognormal_sizes, shuffle_groups, sort_by_class, split_groups
from fedrun.data.partitions.train_split import TrainSplitPartition, with_pooled_test


@config_class
class DirichletFedDC(TrainSplitPartition):
    """Client k draws by prior_k ~ Dir(α 1_C) until it is full (FedDyn: Acar et al., 2021; FedDC: Gao et al., 2022).

    For every draw a client is chosen uniformly among those not yet full. It takes an unused sample of a class that is
    chosen by its prior. The published code repeats a draw whose class is empty; here the prior is renormalised over the
    other classes, which is the same law. Late draws therefore deviate from the priors.

    Attributes (besides those of :class:`TrainSplitPartition`):
        alpha: α, at least 1e-6, the concentration; small values give about one class per client; 0.6 and 0.3 in the
            papers.
        sigma: σ of the clients' lognormal sizes, as in ``partition=quantity_lognormal``; 0: equal sizes.
    """

    alpha: Annotated[float, Ge(1e-6)]
    sigma: Annotated[float, Ge(0)]

    needs_classes: ClassVar[bool] = True

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = self.training_targets(dataset)
        rng = self.generator(seed)
        samples, class_sizes = sort_by_class(targets, dataset.spec.classes)
        shuffle_groups(samples, class_sizes, rng)
        sizes = lognormal_sizes(len(targets), self.clients, self.sigma, rng)
        log_priors = log_dirichlet(np.full(len(class_sizes), self.alpha), self.clients, rng)
        counts = draw_counts(sizes, *poisson_times(sizes, rng), log_priors, class_sizes, rng)
        return with_pooled_test(dataset, split_groups(samples, counts))


def poisson_times(sizes: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The intervals in which clients draw if they take random turns: begins and durations, float64 ``[N]``.

    Each client draws at the events of a Poisson process of rate 1 that ends when the client is full. The next event of
    N such processes belongs to each running process with the same probability. Given the time of a process's event
    s + 1, which is gamma distributed, the s events before it are uniform.
    """
    return np.zeros(len(sizes)), rng.standard_gamma(sizes + 1.0)
