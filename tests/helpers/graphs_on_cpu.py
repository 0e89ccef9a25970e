"""Recorded functions without a GPU."""

from __future__ import annotations

from collections import OrderedDict

import torch

from fedrun.models.cuda_graphs import CudaGraphs


class GraphsOnCpu(CudaGraphs):
    """Records a function, which returns a sequence of tensors or None, by keeping it. To run the recording calls it
    again with the recorded arguments, and writes to the tensors of the first result, as a CUDA graph does.

    Args:
        reason: why functions cannot be recorded; None: they can.
    """

    def __init__(self, reason: str | None = None) -> None:
        self._cached = OrderedDict()
        self.reason = reason
        self.captures = 0

    def watched(self, function):
        return function(), self.reason

    def capture(self, function):
        self.captures += 1
        results: list[torch.Tensor] = []

        def replay() -> None:
            new = [part.clone() for part in function() or ()]
            for own, part in zip(results, new, strict=False):
                own.copy_(part)
            results.extend(new[len(results) :])

        return replay, results
