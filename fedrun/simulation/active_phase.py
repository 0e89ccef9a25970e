"""A phase with the objects that run it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from fedrun.evaluation.evaluator import Evaluator
from fedrun.experiment.clock.base import Devices
from fedrun.simulation.costs import usual_seconds
from fedrun.simulation.round_runner import RoundRunner
from fedrun.simulation.selection import Participations
from fedrun.strategies.phase import Phase
from fedrun.uploads.privacy.base import Mechanism


@dataclass(frozen=True)
class ActivePhase:
    """A phase with the objects that run it.

    Attributes:
        phase: the phase.
        runner: runs the local work of its rounds.
        evaluator: evaluates its models.
        mechanism: its mechanism of privacy.
        participations: counts the rounds in which its clients took part.
        devices: the clients' devices; None: virtual time is not measured.
        models: the final models of the phase before it, ``[P]`` each.
    """

    phase: Phase
    runner: RoundRunner
    evaluator: Evaluator
    mechanism: Mechanism
    participations: Participations
    devices: Devices | None = None
    models: tuple[torch.Tensor, ...] = ()

    @cached_property
    def seconds(self) -> torch.Tensor:
        """T_k, the time from a client's start to the arrival of its upload, float64 ``[N]``."""
        assert self.devices is not None
        return usual_seconds(self.phase, self.runner.executor, self.devices)
