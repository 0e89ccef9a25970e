"""An optional second phase after the rounds of a strategy, which trains on top of its models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Encoding
from fedrun.data.samples import Samples
from fedrun.strategies.phase import Phase

ComputeFeatures = Callable[["Samples", "torch.Tensor", "Encoding", int], "torch.Tensor"]
"""Computes the features float32 ``[n, width]`` of the samples with these indices under an encoding of this width."""


@config_class
class PostTraining:
    """No second phase; the options that have one extend this class."""

    @property
    def needs_classes(self) -> bool:
        """Whether it requires a classification task: it joins the heads of several models, whose logits add up."""
        return False

    def last_rounds(self, rounds: int) -> int:
        """How many of a run's rounds belong to the second phase; 0: there is none."""
        return 0

    def check(self) -> None:
        """Reject keys that contradict each other.

        Raises:
            InputError: naming them and what is allowed.
        """

    def check_clients(self, clients: int) -> None:
        """Reject settings that cannot work with this many clients.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def next_phase(self, phase: Phase, models: Sequence[torch.Tensor], compute_features: ComputeFeatures) -> Phase:
        """The second phase.

        Args:
            phase: the first.
            models: the final models of that phase, ``[P]`` each.
            compute_features: evaluates frozen encoders on samples, on all ranks together.
        """
        raise NotImplementedError
