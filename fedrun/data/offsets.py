"""Where groups that lie one after another begin and end, such as the samples of one client after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def offsets_of(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """The beginnings of groups of these sizes, and the end of the last one: int64 ``[len(sizes) + 1]``."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
