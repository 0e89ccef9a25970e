"""The arithmetic of a round, estimated before the run. It depends on the configuration and the data only."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.models.multiply_adds import multiply_adds
from fedrun.strategies.phase import Phase
from fedrun.training.batches import steps_of

MULTIPLY_ADDS_PER_SECOND = 4e10
"""Approximate rate of one core of a server of 2022 in the convolutions and matrix products of training."""

STEP_SECONDS = 4e-4
"""Approximate overhead of an SGD step."""


@dataclass(frozen=True)
class RoundWork:
    """The average arithmetic of the clients of a round.

    Attributes:
        step: multiply-adds of a forward pass over one batch.
        gradients: number of batch gradients that all clients of a round compute.
    """

    step: int
    gradients: float

    @classmethod
    def of(cls, phase: Phase) -> RoundWork:
        """The work of a phase's rounds."""
        sizes, samples = phase.federation.train.sizes, phase.samples
        inputs, _ = samples.gather(torch.zeros(2, dtype=torch.int64))  # two: BatchNorm may need a variance
        sample = multiply_adds(phase.network.network, samples.encoding(inputs)) / 2
        mean_size = float(sizes.double().mean())
        batch = min(phase.local.batch_size or mean_size, mean_size)
        passes = phase.client.passes
        steps = float(steps_of(sizes, phase.local, len(passes)).double().mean())
        return cls(round(sample * batch), phase.cohort_size * steps * sum(passes))

    @property
    def seconds(self) -> float:
        """Approximate time on one core. A backward pass costs as much as two forward passes."""
        return self.gradients * (STEP_SECONDS + 3 * self.step / MULTIPLY_ADDS_PER_SECOND)
