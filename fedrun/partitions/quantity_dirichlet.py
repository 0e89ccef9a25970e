"""Quantity skew: iid samples, sizes in Dirichlet proportions."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.errors import InputError
from fedrun.federation import Federation
from fedrun.partitions.base import Partition
from fedrun.partitions.dealing import consecutive
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.recipe import STRICT

ATTEMPTS = 10_000
"""Draws made before a setting is given up as hopeless."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class QuantityDirichlet(Partition):
    """A permutation cut in proportions p ~ Dir(β 1_N) (``iid-diff-quantity`` of NIID-Bench: Li et al., ICDE 2022).

    p is redrawn until its smallest part has ``min_samples``. NumPy's legacy ``RandomState(seed)`` is asked in
    NIID-Bench's order, so that its partitions are reproduced index by index.

    Attributes:
        clients: N, number of clients.
        beta: β > 0, the concentration; small values give very unequal sizes; 0.5 is NIID-Bench's usual one.
        min_samples: smallest number of training samples that a client may have; 10 in NIID-Bench.
        seed: of the draw, taken modulo 2³²; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    beta: Annotated[float, Gt(0)]
    min_samples: Annotated[int, Ge(1)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        needs = f"clients={self.clients} with min_samples={self.min_samples}"
        targets = training_targets(dataset, "quantity_dirichlet", self.clients * self.min_samples, needs)
        rng = np.random.RandomState((seed if self.seed is None else self.seed) % 2**32)
        samples = rng.permutation(len(targets))
        for _ in range(ATTEMPTS):
            shares = rng.dirichlet(np.full(self.clients, self.beta))
            shares /= shares.sum()
            # False for the NaN that a tiny beta's underflowing gamma draws give.
            if shares.min() * len(targets) >= self.min_samples:
                break
        else:
            raise InputError(
                f"partition=quantity_dirichlet: in {ATTEMPTS} draws some client always had fewer than "
                f"min_samples={self.min_samples} samples; use a larger beta than {self.beta:g}, fewer clients than "
                f"{self.clients} or a smaller min_samples"
            )
        cuts = (np.cumsum(shares) * len(targets)).astype(np.int64)[:-1]
        return pooled_federation(dataset, consecutive(samples, np.diff(cuts, prepend=0, append=len(targets))))
