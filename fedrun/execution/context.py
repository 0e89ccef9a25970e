"""What an executor is given, and what it returns for each client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_state import ClientStates
from fedrun.strategies.clustering.context import TrainingContext
from fedrun.strategies.vectors import Vectors
from fedrun.training.objective import Trained
from fedrun.uploads.attacks.base import Attack


@dataclass(frozen=True)
class ExecutionContext(TrainingContext):
    """Everything that an executor needs and that does not change from round to round.

    Attributes:
        client: how local training differs from plain SGD.
        attack: what the attackers among the clients do.
        attackers: their numbers.
        thresholds: the threshold ρ_k of every client, float64 ``[N]``, where the client strategy uses it.
        keeps_last: whether the state of a client holds the model that it has last sent.
    """

    client: ClientStrategy
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    thresholds: torch.Tensor | None = None
    stores_last_upload: bool = False


@dataclass(frozen=True)
class ClientResult:
    """One client's local training, done.

    Attributes:
        position: index into the cohort.
        start: ``[P]``, the model at which training started.
        model: ``[P]``, the model after training, valid until the next visit.
        uploads: what the client half sends.
        memory: what the client will remember.
        trained: counts and sums of the training.
    """

    position: int
    start: torch.Tensor
    model: torch.Tensor
    uploads: Vectors
    memory: Vectors
    trained: Trained


@dataclass(frozen=True)
class CohortJob:
    """What a cohort is asked to do.

    Attributes:
        cohort: client numbers, int64 ``[C]``.
        round: t, 0 in the first round.
        received: what the server broadcasts.
        memory: what clients remember.
        steps: local steps of each, int64 ``[C]``; None: as the local training says.
        fusion: by how much of its idle displacement a client's start is moved.
        uploads: whether what is trained will be sent up: attackers do their work then only.
        mixture: what each of several models counts for each of the cohort, float64 ``[C, M]``.
    """

    cohort: torch.Tensor
    round: int
    received: Vectors
    memory: ClientStates
    steps: torch.Tensor | None = None
    fusion: float = 0.0
    uploads: bool = True
    mixture: torch.Tensor | None = None

    def part(self, which: torch.Tensor) -> CohortJob:
        """The same for some of the cohort, by their positions or a mask ``[C]``."""

        def some(each: torch.Tensor | None) -> torch.Tensor | None:
            return None if each is None else each[which]

        return replace(self, cohort=self.cohort[which], steps=some(self.steps), mixture=some(self.mixture))


Progress = Callable[[int], None]
