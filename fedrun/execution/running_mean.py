"""The weighted mean of vectors that arrive one at a time."""

from __future__ import annotations

import torch

BLOCK = 32
"""Vectors that a running mean takes up before it is added to the mean of such means."""


class RunningMean:
    """The weighted mean of vectors that arrive one at a time.

    Every addition rounds the mean to its float format. To keep the errors of thousands of additions from adding up,
    only :data:`BLOCK` vectors enter one mean, whose result is a single vector for the running mean of such means, and
    so on: n vectors need the memory of at most 1 + log n / log BLOCK.
    """

    def __init__(self) -> None:
        self._mean: torch.Tensor | None = None
        self._weight = 0.0
        self._count = 0  # of all vectors behind the mean
        self._additions = 0
        self._blocks: RunningMean | None = None

    def add(self, vector: torch.Tensor, weight: float, count: int = 1) -> None:
        """Add one vector, or the mean of a number of vectors with this total weight.

        Until a vector has a weight other than zero, all count alike.
        """
        if self._additions == BLOCK:
            self._end_block()
        self._additions += 1
        self._count += count
        self._weight += weight
        share = weight / self._weight if self._weight else count / self._count
        if self._mean is None:
            self._mean = vector.clone()
        else:
            # mean + (weight / total) (vector − mean): an entry that no vector changes keeps its exact value;
            # Σ w x / Σ w has a rounding error, which a server's Adam would amplify to a full step.
            self._mean.lerp_(vector, share)

    def _end_block(self) -> RunningMean:
        """Move the mean to the mean of means, which is returned."""
        if self._blocks is None:
            self._blocks = RunningMean()
        if self._mean is not None:
            self._blocks.add(self._mean, self._weight, self._count)
        self._mean, self._weight, self._count, self._additions = None, 0.0, 0, 0
        return self._blocks

    def result(self) -> torch.Tensor:
        """The mean of the vectors so far.

        Raises:
            ValueError: no vector was added.
        """
        if self._blocks is not None:
            return self._end_block().result()
        if self._mean is None:
            raise ValueError("no vector was added")
        return self._mean
