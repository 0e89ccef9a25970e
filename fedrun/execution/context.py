"""What an executor is given, and what it returns for each client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from fedrun.data.federation import Shares
from fedrun.data.samples import Samples
from fedrun.models.flat_network import FlatNetwork
from fedrun.models.inference import SampleResults, evaluate
from fedrun.strategies.client import ClientHalf
from fedrun.strategies.client_state import ClientMemory
from fedrun.strategies.local_training import LocalTraining
from fedrun.strategies.vectors import Vectors
from fedrun.training.objective import Trained
from fedrun.uploads.attacks.base import Attack


@dataclass(frozen=True)
class Workplace:
    """Everything an executor needs that does not change from round to round.

    Attributes:
        network: the network; its vector is scratch space.
        samples: the dataset on its device.
        clients: who holds which training samples.
        client: how local training differs from plain SGD.
        local: how clients train.
        seed: of every random choice.
        attack: what the attackers among the clients do.
        attackers: their numbers.
        thresholds: every client's ρ_k, float64 ``[N]``, where the client half asks for it.
        keeps_last: whether every client remembers the model that it has last sent.
    """

    network: FlatNetwork
    samples: Samples
    clients: Shares
    client: ClientHalf
    local: LocalTraining
    seed: int
    attack: Attack | None = None
    attackers: frozenset[int] = frozenset()
    thresholds: torch.Tensor | None = None
    keeps_last: bool = False

    def results(self, model: torch.Tensor, client: int) -> SampleResults:
        """The results of a model ``[P]`` on a client's training samples."""
        self.network.load(model)
        return evaluate(self.network, self.samples, self.clients[client], FORWARD_BATCH)


@dataclass(frozen=True)
class Visit:
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
class Task:
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
    memory: ClientMemory
    steps: torch.Tensor | None = None
    fusion: float = 0.0
    uploads: bool = True
    mixture: torch.Tensor | None = None

    def part(self, which: torch.Tensor) -> Task:
        """The same for some of the cohort, by their positions or a mask ``[C]``."""

        def some(each: torch.Tensor | None) -> torch.Tensor | None:
            return None if each is None else each[which]

        return replace(self, cohort=self.cohort[which], steps=some(self.steps), mixture=some(self.mixture))


Progress = Callable[[int], None]

IDLE = "idle"
"""In a client's memory: the displacement of the parameters by training that was not sent up, ``[T]``."""

LAST = "last"
"""In a client's memory: the model that it has last sent, ``[P]``, where it is compared or averaged later."""

MOMENTUM = "momentum"
"""In a client's memory: the optimizer's momentum ``[T]``, for halves that keep it."""

FORWARD_BATCH = 1024
"""Samples per forward pass where clients only look at the broadcast model."""

NOTHING = ClientMemory((), 0)
"""The memory of clients that remember nothing."""
