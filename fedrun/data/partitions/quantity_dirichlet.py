"""Quantity skew: iid samples, client sizes in Dirichlet proportions."""

from __future__ import annotations

import logging
from typing import ClassVar

import numpy as np

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Dataset
from fedrun.data.federation import Federation
from fedrun.data.partitions.dirichlet import DirichletProportions
from fedrun.data.partitions.index_groups import split_consecutive
from fedrun.data.partitions.train_split import with_pooled_test

log = logging.getLogger(__name__)

BLOCK = 1 << 15
"""Random numbers drawn at once. The block size does not change the stream."""

NOTICE = 10**8
"""Random numbers after which the log reports that drawing continues."""


@config_class
class QuantityDirichlet(DirichletProportions):
    """A permutation is cut in proportions p ~ Dir(β 1_N) (``iid-diff-quantity`` of NIID-Bench: Li et al., ICDE 2022).

    p is redrawn until its smallest part has ``min_samples``. The generator is NumPy's legacy ``RandomState(seed)`` and
    draws in NIID-Bench's order, so its partitions are reproduced index by index. NIID-Bench's setting of 100 clients
    with β = 0.5 takes about 100 000 draws on 50 000 samples.

    Attributes (besides those of :class:`DirichletProportions`):
        beta: β > 0, the concentration; small values give very unequal sizes; NIID-Bench usually takes 0.5.
    """

    variates: ClassVar[int] = 10**9
    """Random numbers after which the partition fails, at least 10 000 draws; a few minutes of computation."""

    def split(self, dataset: Dataset, seed: int) -> Federation:
        total = len(self.training_targets(dataset, self.min_samples, "min_samples"))
        rng = self.legacy_generator(seed)
        samples = rng.permutation(total)
        cuts = (np.cumsum(self._proportions(total, rng)) * total).astype(np.int64)[:-1]
        return with_pooled_test(dataset, split_consecutive(samples, np.diff(cuts, prepend=0, append=total)))

    def _proportions(self, total: int, rng: np.random.RandomState) -> np.ndarray:
        """The first drawn proportions ``[N]`` whose smallest part of ``total`` samples is at least ``min_samples``."""
        concentrations = np.full(self.clients, self.beta)
        limit = max(10_000, self.variates // max(self.clients, 100))
        block = max(1, BLOCK // self.clients)
        draw_count = 0
        while draw_count < limit:
            if draw_count * self.clients < NOTICE <= (draw_count + block) * self.clients:
                log.warning("%s: %d draws so far, drawing up to %d", self.choice, draw_count, limit)
            block = min(block, limit - draw_count)
            proportions = rng.dirichlet(concentrations, block)
            # 1e-9: rows that the exact test may accept. A tiny beta underflows to NaN, which compares false.
            for row in np.flatnonzero(proportions.min(1) * total >= self.min_samples * (1 - 1e-9)):
                accepted: np.ndarray = proportions[row] / proportions[row].sum()
                if accepted.min() * total >= self.min_samples:
                    return accepted
            draw_count += block
        raise self.draws_exhausted(limit)
