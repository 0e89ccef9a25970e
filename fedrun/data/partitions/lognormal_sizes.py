"""Clients of unequal sizes."""

from __future__ import annotations

import numpy as np

from fedrun.data.partitions.index_groups import even_sizes
from fedrun.system.errors import InputError


def lognormal_sizes(total: int, clients: int, sigma: float, rng: np.random.Generator, partition: str) -> np.ndarray:
    """Sizes of clients, int64 ``[N]``, which sum to ``total`` (FedDC's ``unbalanced_sgm``).

    s_k ~ LogNormal(log floor(n/N), σ), scaled to sum to n and rounded down. As in the published code, the first client
    gets the remainder, fewer than N samples. With σ = 0 sizes are equal within one; in the published code all but the
    first may then be one too small.

    Raises:
        InputError: a client would get no sample.
    """
    if sigma == 0:
        return even_sizes(total, clients)
    logarithms = rng.normal(0.0, sigma, clients)
    relative = np.exp(logarithms - logarithms.max())  # the scale is free, and this one cannot overflow
    sizes: np.ndarray = np.floor(relative / relative.sum() * total).astype(np.int64)
    sizes[0] += total - sizes.sum()
    if sizes.min() == 0:
        raise InputError(
            f"partition={partition}: sigma={sigma:g} leaves {(sizes == 0).sum()} of clients={clients} without a sample "
            f"of {total}; use a smaller sigma or fewer clients"
        )
    return sizes
