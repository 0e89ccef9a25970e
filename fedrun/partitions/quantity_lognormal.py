"""Quantity skew: iid samples, lognormal sizes."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.federation import Federation
from fedrun.partitions.base import Partition
from fedrun.partitions.dealing import consecutive
from fedrun.partitions.lognormal_sizes import lognormal_sizes
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.randomness import numpy_generator
from fedrun.recipe import STRICT


@dataclass(frozen=True, kw_only=True, config=STRICT)
class QuantityLognormal(Partition):
    """A permutation cut into parts of lognormal sizes (``unbalanced_sgm`` of FedDyn and FedDC; FedUmf).

    s_k ~ LogNormal(log floor(n/N), σ), scaled to sum to n and rounded down; the first client gets what rounding left
    over, fewer than N samples. Drawn from the addressed generator ``(seed, "partition")``.

    Attributes:
        clients: N, number of clients.
        sigma: σ of the sizes' logarithms; 0.3 in FedDC and FedUmf; 0: equal sizes, within one.
        seed: of the draw; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    sigma: Annotated[float, Ge(0)]
    seed: Annotated[int, Ge(0)] | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        total = len(training_targets(dataset, "quantity_lognormal", self.clients, f"clients={self.clients}"))
        rng = numpy_generator(seed if self.seed is None else self.seed, "partition")
        samples = rng.permutation(total)
        sizes = lognormal_sizes(total, self.clients, self.sigma, rng, "quantity_lognormal")
        return pooled_federation(dataset, consecutive(samples, sizes))
