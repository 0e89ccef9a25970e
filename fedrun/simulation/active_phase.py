"""A phase with the objects that run it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.evaluation.evaluator import Evaluator
from fedrun.simulation.costs import Costs
from fedrun.simulation.round_runner import RoundRunner
from fedrun.simulation.selection import ParticipationCounts
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
        costs: computes the costs of its rounds.
        models: the final models of the phase before it, ``[P]`` each.
    """

    phase: Phase
    runner: RoundRunner
    evaluator: Evaluator
    mechanism: Mechanism
    participations: ParticipationCounts
    costs: Costs
    models: tuple[torch.Tensor, ...]
