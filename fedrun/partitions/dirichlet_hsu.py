"""Label skew: every client has its own class distribution around the global one."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.federation import Federation
from fedrun.partitions.base import Partition
from fedrun.partitions.class_priors import draw_counts, log_dirichlet
from fedrun.partitions.dealing import deal, even_sizes, piles_of_classes, shuffle_piles
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.randomness import numpy_generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class DirichletHsu(Partition):
    """Client k draws q_k ~ Dir(α p), then its n/N samples by q_k (Hsu, Qi, Brown, 2019, arXiv 1909.06335).

    p is the distribution of the classes among the training samples. One client after the other draws without
    replacement; q_k is renormalised over the classes that are not yet empty, so the last clients take what is left.
    Where N does not divide n, the first clients have one sample more. Drawn from the addressed generator
    ``(seed, "partition")``.

    Attributes:
        clients: N, number of clients.
        alpha: α, at least 1e-6, the concentration; small values give about one class per client, large ones give p.
        seed: of the draw; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    alpha: Annotated[float, Ge(1e-6)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        targets = training_targets(dataset, "dirichlet_hsu", self.clients, f"clients={self.clients}")
        rng = numpy_generator(seed if self.seed is None else self.seed, "partition")
        samples, class_sizes = piles_of_classes(targets, dataset.spec.classes)
        shuffle_piles(samples, class_sizes, rng)
        log_priors = log_dirichlet(self.alpha * class_sizes / len(targets), self.clients, rng)
        sizes, begins = even_sizes(len(targets), self.clients), np.arange(float(self.clients))
        counts = draw_counts(sizes, begins, np.ones(self.clients), log_priors, class_sizes, rng)
        return pooled_federation(dataset, deal(samples, counts))
