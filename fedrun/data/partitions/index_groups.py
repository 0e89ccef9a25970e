"""Arithmetic on sample indices in groups, such as one group per class, without a loop over clients."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from fedrun.data.federation import ClientIndices
from fedrun.data.offsets import offsets_of
from fedrun.system.errors import InputError


def even_sizes(total: int, parts: int) -> np.ndarray:
    """Sizes of ``parts`` parts of ``total``, int64 ``[parts]``: equal, the first ``total mod parts`` one larger."""
    least, larger = divmod(total, parts)
    return least + (np.arange(parts) < larger).astype(np.int64)


def lognormal_sizes(total: int, clients: int, sigma: float, rng: np.random.Generator) -> np.ndarray:
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
            f"partition.sigma={sigma:g} leaves {(sizes == 0).sum()} of partition.clients={clients} without a sample of "
            f"{total}; use a smaller sigma or fewer clients"
        )
    return sizes


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The concatenated ranges ``starts[i] .. starts[i] + sizes[i] - 1``: int64 ``[sum(sizes)]``."""
    offsets = offsets_of(sizes)
    positions = np.repeat(starts - offsets[:-1], sizes)
    positions += np.arange(offsets[-1])
    return positions


def sort_by_class(targets: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples sorted by class.

    Args:
        targets: int64 ``[n]``.
        classes: C.

    Returns:
        The sample indices ``[n]``, sorted by class and ascending within a class, and the classes' sizes ``[C]``.
    """
    # NumPy sorts 8- and 16-bit integers by radix, in linear time.
    narrow = targets.astype(np.min_scalar_type(classes - 1))
    return np.argsort(narrow, kind="stable"), np.bincount(targets, minlength=classes)


def shuffle_groups(samples: np.ndarray, sizes: np.ndarray, rng: np.random.RandomState | np.random.Generator) -> None:
    """Shuffle each group of ``samples`` (of these sizes) in place, one group after another."""
    for start, stop in pairwise(offsets_of(sizes).tolist()):
        rng.shuffle(samples[start:stop])


def split_groups(samples: np.ndarray, counts: np.ndarray) -> ClientIndices:
    """Split every group of samples among the clients.

    Args:
        samples: the groups, one after another, int64 ``[n]``.
        counts: number of samples of each group for each client, int64 ``[groups, N]``; a row sums to the group's size.
            The first client gets the first samples of a group.

    Returns:
        The clients' indices, each in the order of the groups.
    """
    starts = offsets_of(counts.ravel())[:-1].reshape(counts.shape)
    positions = ranges(starts.T.ravel(), counts.T.ravel())
    return split_consecutive(samples[positions], counts.sum(0))


def split_consecutive(samples: np.ndarray, sizes: np.ndarray) -> ClientIndices:
    """Clients that have consecutive parts of ``samples`` (int64 ``[n]``) of these sizes ``[N]``."""
    return ClientIndices(torch.from_numpy(samples), torch.from_numpy(offsets_of(sizes)))
