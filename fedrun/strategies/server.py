"""The server side of a strategy: how the uploads of a cohort become the next global state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors

Rows = Literal["none", "head", "parameters", "all"]
"""Which entries of every single client's model a server strategy needs besides the weighted mean."""

COLUMNS = 2**14
"""Entries of the clients' models that a server strategy works on at a time, so that it needs no second set of them."""


@dataclass(frozen=True)
class Round:
    """What a server strategy may know about the round that it aggregates.

    Attributes:
        index: t, 0 in the first round.
        total: T, the rounds of the run under this strategy (a further phase may follow).
        clients: N, the number of clients in the federation, or in a cluster that lasts.
        layout: where things lie in a model's vector.
        seed: the run's seed, for :func:`fedrun.system.randomness.generator`.
        lr: η_t, the learning rate with which the clients trained.
    """

    index: int
    total: int
    clients: int
    layout: Layout
    seed: int
    lr: float


@dataclass(frozen=True, kw_only=True)
class Senders:
    """Clients that have sent something up.

    Attributes:
        clients: int64 ``[C]``, in the order of selection.
        samples: int64 ``[C]``, training samples n_k.
        reports: those of their uploads that are single numbers, float64 ``[C]`` each.
        label_counts: their training samples per class, int64 ``[C, classes]``; None where they are not wanted.
    """

    clients: torch.Tensor
    samples: torch.Tensor
    reports: Vectors = field(default_factory=dict)
    label_counts: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class CohortUpdate(Senders):
    """What a cohort's local training sends back.

    Clients whose upload is not finite are left out of everything but ``excluded``.

    Attributes:
        steps: int64 ``[C]``, SGD steps made.
        mean: weighted mean over the clients of each uploaded vector, with :meth:`ServerStrategy.weights`. The server
            strategy may overwrite them, and build the next state in their place.
        total_weight: the sum of those weights.
        rows: ``[C, r]``, the entries of every client's model that :attr:`ServerStrategy.rows` asks for, or None.
        excluded: clients whose upload held NaN or infinity.
        loss: mean training loss over the samples processed during local training.
        score: mean of the task's score over those samples, when they were processed; of a classification the share
            predicted correctly.
        client_samples: samples processed in training (forward and backward), summed over clients.
        forward_samples: samples processed by forward passes only, summed over clients.
        accepted_samples: samples over which ``loss`` and ``score`` are means.
        measures: what the transforms of uploads have measured, float64 ``[C]`` each.
        represented: the number of clients that the means stand for, where it is not C: the expected cohort of a
            private round, since C itself is private.
    """

    steps: torch.Tensor
    mean: Vectors
    total_weight: float
    rows: torch.Tensor | None
    excluded: tuple[int, ...]
    loss: float
    score: float
    client_samples: int
    forward_samples: int = 0
    accepted_samples: int = 0
    measures: Vectors = field(default_factory=dict)
    represented: float | None = None

    @property
    def count(self) -> float:
        """The number of clients that the means stand for."""
        return len(self.clients) if self.represented is None else self.represented


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


class IdleTraining(ABC):
    """What clients do in rounds for which they are not selected: they train, and start later from what they keep.

    What a client keeps lasts for one round: it is given back to a client that is selected in the next round.
    """

    @abstractmethod
    def client_state(self, layout: Layout) -> dict[str, int]:
        """The lengths of the vectors that an idle client keeps, by name."""

    @abstractmethod
    def keep(self, start: torch.Tensor, model: torch.Tensor, layout: Layout) -> Vectors:
        """What an idle client keeps of its training from ``start`` to ``model``, ``[P]`` each."""

    @abstractmethod
    def start(self, start: torch.Tensor, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        """The model ``[..., P]`` at which a selected client starts; a fresh tensor, or ``start`` itself.

        Args:
            start: what the client strategy has chosen, ``[..., P]``.
            client_state: with zeros under the names of :meth:`client_state` for clients that were not idle.
            client: what is known of the client.
        """


class ServerStrategy(ABC):
    """How a cohort's uploads become the next global state.

    Attributes:
        needs: names that the clients must upload.
        broadcasts: names that the server sends besides the model.
        maintains: names of client states whose mean over all clients this strategy follows and uses.
        rows: which entries of every single client's model it needs (it always has the mean).
        needs_classes: whether it works for a classification only; by default where it wants label counts.
        changes_head: whether it changes the head beyond what the clients send.
        wants_label_counts: whether clients send their numbers of training samples per class, once, before training.
        idle_training: what clients do that are not selected; None: nothing.
    """

    changes_head: ClassVar[bool] = False

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
    def needs_classes(self) -> bool:
        return self.wants_label_counts

    @property
    def idle_training(self) -> IdleTraining | None:
        return None

    @property
    def wants_label_counts(self) -> bool:
        return False

    def check(self, rounds: int) -> None:
        """Reject settings that cannot work in a run of this many rounds.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def prepare(self, network: torch.nn.Module) -> None:
        """Change a model's network, in place, before its vector is laid out: freeze parameters, add buffers.

        Raises:
            InputError: the network is not as the strategy needs it.
        """

    def check_cohort(self, clients: int) -> None:
        """Reject rounds of this many clients.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        """The state before the first round, given the initial model ``[P]`` and the number N of clients.

        ``model`` of the state is what is evaluated; :meth:`broadcast` may send another model.
        """
        return ServerState(model)

    def steps(self, state: ServerState, cohort: torch.Tensor, usual: torch.Tensor) -> torch.Tensor:
        """The number of local steps of each of the cohort (int64 ``[C]``): ``usual``, int64 ``[C]``, by default."""
        return usual

    def weights(self, state: ServerState, senders: Senders) -> torch.Tensor:
        """Unnormalised weight of each client in the mean, float64 ``[C]``: n_k by default.

        Uploads are folded into the mean as they come. So a weight that depends on a report must not depend on the other
        clients: where clients send reports, the hook is called for one client at a time, unless the strategy wants
        label counts. Otherwise it is called for the whole cohort.
        """
        return senders.samples.double()

    def broadcast(self, state: ServerState) -> Vectors:
        """What is sent down to every client of the cohort, the model included."""
        return {MODEL: state.model}

    def mean_model(self, state: ServerState, layout: Layout) -> torch.Tensor | None:
        """The mean ``[P]`` of the models that the last round's participants have sent, with :meth:`weights`; None where
        the state does not determine it.
        """
        return None

    @abstractmethod
    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        """The next state, and metrics of the step to be logged under ``server/``."""
