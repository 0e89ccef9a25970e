"""The arithmetic of a round, before any round was made. It depends on the configuration and the data only."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.models.multiply_adds import multiply_adds
from fedrun.strategies.phase import Phase
from fedrun.training.batches import steps_of

MULTIPLY_ADDS_PER_SECOND = 4e10
"""Of one core of a server of 2022, about, in the convolutions and matrix products of training."""

STEP_SECONDS = 4e-4
"""What an SGD step takes besides, about."""


@dataclass(frozen=True)
class RoundWork:
    """What the clients of a round compute on average.

    Attributes:
        step: multiply-adds of a forward pass over one batch.
        steps: SGD steps of all clients of a round.
    """

    step: int
    steps: float

    @classmethod
    def of(cls, phase: Phase) -> RoundWork:
        """The work of a phase's rounds."""
        sizes, samples = phase.federation.train.sizes, phase.samples
        inputs, _ = samples.gather(torch.zeros(1, dtype=torch.int64))
        sample = multiply_adds(phase.network.network, samples.encoding(inputs))
        largest = float(sizes.double().mean())
        batch = min(phase.local.batch_size or largest, largest)
        steps = steps_of(sizes, phase.local).double().mean()
        return cls(round(sample * batch), phase.cohort_size * float(steps))

    @property
    def seconds(self) -> float:
        """How long one core takes, about. A backward pass costs as much as two forward passes."""
        return self.steps * (STEP_SECONDS + 3 * self.step / MULTIPLY_ADDS_PER_SECOND)
