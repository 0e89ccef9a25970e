"""Label skew: each class is spread over the clients in Dirichlet proportions."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Dataset
from fedrun.errors import InputError
from fedrun.federation import Federation, Shares
from fedrun.partitions.base import Partition
from fedrun.partitions.publisher_split import pooled_federation, training_targets
from fedrun.recipe import STRICT

ATTEMPTS = 10_000
"""Draws made, of a whole partition or of one class's proportions, before a setting is given up as hopeless."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Dirichlet(Partition):
    """p_c ~ Dir(β 1_N) shares class c out over the N clients (NIID-Bench: Li, Diao, Chen, He, ICDE 2022; FedConcat).

    A client that already holds n/N samples gets nothing of the classes that follow (what it has it keeps), and the
    whole draw is repeated until the smallest client has ``min_samples``. NumPy's legacy ``RandomState(seed)`` is asked
    in NIID-Bench's order, so that its partitions are reproduced index by index; a draw that would divide by zero there
    (p_c is zero for every client that may still get samples) is repeated here.

    Attributes:
        clients: N, number of clients.
        beta: β > 0, the concentration; small values give few classes per client, 0.5 is NIID-Bench's usual one.
        min_samples: smallest number of training samples that a client may have; 10 in NIID-Bench.
        seed: of the draw, taken modulo 2³²; None for the run's seed.
    """

    clients: Annotated[int, Ge(1)]
    beta: Annotated[float, Gt(0)]
    min_samples: Annotated[int, Ge(1)]
    seed: int | None

    def split(self, dataset: Dataset, seed: int) -> Federation:
        needs = f"clients={self.clients} with min_samples={self.min_samples}"
        targets = training_targets(dataset, "dirichlet", self.clients * self.min_samples, needs)
        rng = np.random.RandomState((seed if self.seed is None else self.seed) % 2**32)
        by_class = [np.flatnonzero(targets == label) for label in range(dataset.spec.classes)]
        for _ in range(ATTEMPTS):
            samples, owners = self._deal(by_class, len(targets), rng)
            sizes = np.bincount(owners, minlength=self.clients)
            if sizes.min() >= self.min_samples:
                break
        else:
            raise InputError(
                f"partition=dirichlet: in {ATTEMPTS} draws some client always had fewer than "
                f"min_samples={self.min_samples} samples; use a larger beta than {self.beta:g}, fewer clients than "
                f"{self.clients} or a smaller min_samples"
            )
        parts = np.split(samples[np.argsort(owners, kind="stable")], np.cumsum(sizes)[:-1])
        for part in parts:
            rng.shuffle(part)
        return pooled_federation(dataset, Shares.of(parts))

    def _deal(
        self, by_class: list[np.ndarray], total: int, rng: np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray]:
        """One draw: every training sample ``[n]``, class by class, and the client that gets it ``[n]``."""
        held = np.zeros(self.clients, dtype=np.int64)
        samples, owners = [], []
        for members in by_class:
            order = members.copy()
            rng.shuffle(order)
            shares = self._proportions(held < total / self.clients, rng, empty=len(order) == 0)
            cuts = (np.cumsum(shares) * len(order)).astype(np.int64)[:-1]
            counts = np.diff(cuts, prepend=0, append=len(order))
            held += counts
            samples.append(order)
            owners.append(np.repeat(np.arange(self.clients), counts))
        return np.concatenate(samples), np.concatenate(owners)

    def _proportions(self, below_cap: np.ndarray, rng: np.random.RandomState, empty: bool) -> np.ndarray:
        """One class's proportions over the clients, ``[N]``; zeros for a class without samples, which still draws."""
        for _ in range(ATTEMPTS):
            shares: np.ndarray = np.where(below_cap, rng.dirichlet(np.full(self.clients, self.beta)), 0.0)
            if empty:
                return np.zeros(self.clients)
            total = shares.sum()
            # A tiny beta's gamma draws underflow, and NumPy then returns NaN or infinity.
            if 0 < total < np.inf:
                shares /= total
                return shares
        raise InputError(f"partition=dirichlet: beta={self.beta:g} is too small to draw proportions; use a larger beta")
