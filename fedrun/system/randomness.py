"""Addressed randomness.

Every random choice has its own generator, derived from an address such as ``(seed, "batches", round, client)``. Nothing
is drawn from a shared stream, so results do not depend on the order of execution, on the number of workers, or on
interruptions.
"""

from __future__ import annotations

import hashlib

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


def seed_device(seed: int, device: torch.device) -> None:
    """Seed PyTorch's own generators of the CPU and of a device, from which dropout and users' code draw.

    :func:`torch.manual_seed` does this for devices of all kinds at once. It takes as long as some steps of a small
    model.
    """
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    torch.default_generator.manual_seed(seed)
