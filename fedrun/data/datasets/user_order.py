"""Samples in the order of a dataset's users."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedrun.data.datasets.base import Users
from fedrun.data.offsets import offsets_of


def by_user(owner: np.ndarray, names: Sequence[str], test: np.ndarray) -> tuple[np.ndarray, Users]:
    """Training samples first, each split by user; a user with samples in both splits is a training and a test user.

    Args:
        owner: the number of each sample's user, int64 ``[n]``.
        names: names of the users.
        test: which samples are test samples, bool ``[n]``.

    Returns:
        The new order, int64 ``[n]``, which keeps the order of each user's samples, and the users.
    """
    order = np.lexsort((owner, test))  # stable
    groups, sizes = np.unique((test * len(names) + owner)[order], return_counts=True)
    users = tuple(names[number % len(names)] for number in groups)
    return order, Users(users, torch.from_numpy(offsets_of(sizes)), int((groups < len(names)).sum()))


def numbered(names: Sequence[str | int]) -> tuple[np.ndarray, list[str]]:
    """The number of each user, int64 ``[n]``, and their names in order: as numbers if all are, otherwise as strings."""
    ordered = sorted(set(names), key=int if all(map(_is_number, names)) else str)
    number = {name: number for number, name in enumerate(ordered)}
    return np.array([number[name] for name in names], dtype=np.int64), [str(name) for name in ordered]


def _is_number(name: str | int) -> bool:
    """Whether a user's name is an integer in its usual form: 7, but not 007, which may be another user."""
    return isinstance(name, int) or (name.removeprefix("-").isdecimal() and str(int(name)) == name)
