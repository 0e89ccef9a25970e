"""Addressed randomness.

Every random choice has its own generator, derived from an address such as ``(seed, "batches", round, client)``. Nothing
is drawn from a shared stream, so results do not depend on the order of execution, on the number of workers, or on
interruptions.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def address(seed: int, purpose: str, *where: int) -> int:
    """The 63-bit seed of one random choice.

    Args:
        seed: the run's seed; 0 is a seed like any other.
        purpose: purpose of the choice, such as ``"selection"``. Different purposes never share a stream.
        where: the rest of the address, usually the round and the client.
    """
    text = ",".join([str(seed), purpose, *map(str, where)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def chosen_seed(own: int | None, run: int) -> int:
    """The seed of draws that may have their own: ``own``, or the run's seed if it is None."""
    return run if own is None else own


def generator(seed: int, purpose: str, *where: int) -> torch.Generator:
    """A torch CPU generator for the random choice at this address."""
    return torch.Generator().manual_seed(address(seed, purpose, *where))


def numpy_generator(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """A NumPy generator for the random choice at this address."""
    return np.random.default_rng(address(seed, purpose, *where))


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators from which dropout and users' code draw: PyTorch's of the CPU and of a device, NumPy's global
    one and Python's.

    :func:`torch.manual_seed` seeds PyTorch's for devices of all kinds at once. It takes as long as some steps of a
    small model.
    """
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def restored_generators(device: torch.device) -> Iterator[None]:
    """Give the generators of :func:`seed_generators` back the states that they have before the block."""
    of_numpy, of_python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)
