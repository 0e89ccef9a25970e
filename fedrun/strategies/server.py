"""The server side of a strategy: how the uploads of a cohort become the next global state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.vectors import MODEL, Vectors

if TYPE_CHECKING:
    pass

Rows = Literal["none", "head", "all"]
"""Which entries of every single upload a server half wants to see beside the weighted mean."""

COLUMNS = 2**14
"""Entries of the clients' models that a server half works on at a time, so that it needs no second set of them."""


@dataclass(frozen=True)
class Round:
    """What a server half may know about the round it aggregates.

    Attributes:
        index: t, 0 in the first round.
        total: T, the rounds of the run that the halves carry out (a further stage may follow).
        clients: N, the number of clients in the federation; in a cluster that lasts, of those that belong to it.
        layout: where things lie in a model's vector.
        seed: the run's seed, for :func:`fedrun.system.randomness.generator`.
    """

    index: int
    total: int
    clients: int
    layout: Layout
    seed: int


@dataclass(frozen=True, kw_only=True)
class Senders:
    """Clients that have sent something up.

    Attributes:
        clients: int64 ``[C]``, in the order of selection.
        samples: int64 ``[C]``, training samples n_k.
        reports: those of their uploads that are single numbers, float64 ``[C]`` each.
    """

    clients: torch.Tensor
    samples: torch.Tensor
    reports: Vectors = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CohortUpdate(Senders):
    """What a cohort's local training sends back.

    Clients whose upload is not finite are left out of everything but ``excluded``.

    Attributes:
        steps: int64 ``[C]``, SGD steps made.
        mean: weighted mean over the clients of each uploaded vector, with :meth:`ServerStrategy.weights`. The server
            strategy may overwrite them, and build the next state in their place.
        total_weight: the sum of those weights.
        rows: ``[C, r]``, the entries of every client's model that the server half asked for (``rows``), or None.
        excluded: clients whose upload held NaN or infinity.
        loss: mean training loss over the samples processed during local training.
        accuracy: share of those samples that were predicted correctly when they were processed.
        client_samples: samples processed in training (forward and backward), summed over clients.
        forward_samples: samples processed by forward passes only, summed over clients.
        accepted_samples: samples over which ``loss`` and ``accuracy`` are means.
    """

    steps: torch.Tensor
    mean: Vectors
    total_weight: float
    rows: torch.Tensor | None
    excluded: tuple[int, ...]
    loss: float
    accuracy: float
    client_samples: int
    forward_samples: int = 0
    accepted_samples: int = 0


@dataclass(frozen=True)
class ServerState:
    """Everything the server carries from round to round; all of it goes into the checkpoint.

    Attributes:
        model: the global model, ``[P]``.
        slots: further named tensors (an optimizer's moments, a control variate, ...).
    """

    model: torch.Tensor
    slots: Vectors = field(default_factory=dict)

    def to(self, device: torch.device | str) -> ServerState:
        """The same state on a device."""
        return ServerState(self.model.to(device), {name: slot.to(device) for name, slot in self.slots.items()})


def uniform(senders: Senders) -> torch.Tensor:
    """The weights of a plain mean: 1 for every client, float64 ``[C]``."""
    return torch.ones(len(senders.clients), dtype=torch.float64)


class ServerStrategy(ABC):
    """How a cohort's uploads become the next global state.

    Attributes:
        needs: names the clients must upload.
        broadcasts: names the server sends down beside the model.
        maintains: names of what clients remember whose mean over all clients this half follows and uses.
        rows: which entries of every single client's model it must see (the mean is always there).
        changes_heads: whether the head is changed beyond what the clients send.
        fusion: α, the share of its own idle displacement by which a client's start is moved if it is selected and was
            not in the round before (FedUmf); None: clients that are not selected rest.
    """

    changes_heads: ClassVar[bool] = False

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({MODEL})

    @property
    def broadcasts(self) -> frozenset[str]:
        return frozenset()

    @property
    def maintains(self) -> frozenset[str]:
        return frozenset()

    @property
    def rows(self) -> Rows:
        return "none"

    @property
    def fusion(self) -> float | None:
        return None

    def check(self, rounds: int) -> None:
        """Refuse settings that cannot work in a run of this many rounds.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def check_cohort(self, clients: int) -> None:
        """Refuse rounds of this many clients.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        """The state before the first round, given the initial model ``[P]`` and the number N of clients."""
        return ServerState(model)

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
        """How many local steps each of the cohort (int64 ``[C]``) makes; ``usual``, int64 ``[C]``, by default."""
        return usual

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        """Unnormalised weight of each client in the mean, float64 ``[C]``: n_k by default.

        A client's weight must not depend on the others: uploads are folded into the mean as they come.
        """
        return senders.samples.double()

    def broadcast(self, state: ServerState) -> Vectors:
        """What is sent down to every client of the cohort, the model included."""
        return {MODEL: state.model}

    def mean_model(self, state: ServerState, layout: Layout) -> torch.Tensor | None:
        """The mean ``[P]`` of the models that the last round's participants have sent, with :meth:`weights`; None where
        it cannot be told from the state.
        """
        return None

    @abstractmethod
    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        """The next state, and metrics of the step to be logged under ``server/``."""
