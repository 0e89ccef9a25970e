"""The two halves of a strategy.

The *client half* says how local training differs from plain SGD; the *server half* says how a cohort's uploads become
the next global state. Both are recipes: frozen hyper-parameters and pure functions of tensors. The base classes are
complete: :class:`ClientHalf` is plain SGD, :class:`ServerHalf` leaves only :meth:`ServerHalf.aggregate` to be said.

Client-half functions are written for tensors whose *last* dimension is the vector: the same code serves one client
(``[P]``, ``[T]``) and a vectorised cohort (``[C, P]``, ``[C, T]``). P is the length of a model's vector and T ≤ P its
trainable part, as in :mod:`fedrun.parameters`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch

from fedrun.parameters import Layout

Vectors = Mapping[str, "torch.Tensor"]
"""Named vectors: what is sent up or down, what a client remembers, what the server's state holds."""

Rows = Literal["none", "head", "all"]
"""Which entries of every single upload a server half wants to see beside the weighted mean."""

MODEL = "model"
"""The name under which a model's vector travels, down and up."""


class ClientHalf:
    """Plain local SGD, and the hooks by which a strategy changes it.

    Class attributes (torch-free, so that a configuration can be checked for halves that do not fit together):

    Attributes:
        needs: names the server must broadcast beside the model.
        sends: names the client uploads beside the model.
        remembers: names of vectors ``[T]`` kept between a client's rounds; zero until it first takes part.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    sends: ClassVar[frozenset[str]] = frozenset()
    remembers: ClassVar[frozenset[str]] = frozenset()

    def start(self, received: Vectors, memory: Vectors) -> torch.Tensor:
        """The model ``[..., P]`` at which local training starts: the broadcast one."""
        return received[MODEL]

    def constants(self, received: Vectors, memory: Vectors, trainable: int) -> Vectors:
        """What stays fixed during a client's local training, computed once for :meth:`correct`."""
        return {}

    def correct(self, gradient: torch.Tensor, model: torch.Tensor, constants: Vectors) -> None:
        """Change the gradient ``[..., T]`` in place, given the current trainable part ``model`` ``[..., T]``."""

    def finish(
        self,
        model: torch.Tensor,
        received: Vectors,
        memory: Vectors,
        constants: Vectors,
        steps: torch.Tensor,
        lr: float,
    ) -> tuple[Vectors, Vectors]:
        """What the client sends up beside its model, and what it remembers.

        Args:
            model: ``[..., P]`` after local training.
            received: the broadcast.
            memory: what the client remembered before this round, ``[..., T]`` each.
            constants: from :meth:`constants`.
            steps: number of SGD steps made, float32, broadcastable against ``[..., T]``.
            lr: the learning rate used.

        Returns:
            The uploads (a vector for each name in ``sends``) and the new memory (for each in ``remembers``).
        """
        return {}, {}


@dataclass(frozen=True)
class Round:
    """What a server half may know about the round it aggregates.

    Attributes:
        index: t, 0 in the first round.
        total: T, the rounds of the run.
        clients: N, the number of clients in the federation.
        layout: where things lie in a model's vector.
        seed: the run's seed, for :func:`fedrun.randomness.generator`.
    """

    index: int
    total: int
    clients: int
    layout: Layout
    seed: int


@dataclass(frozen=True)
class CohortUpdate:
    """What a cohort's local training sends back.

    Clients whose upload is not finite are left out of everything but ``excluded``.

    Attributes:
        clients: int64 ``[C]``, in the order of selection.
        samples: int64 ``[C]``, training samples n_k.
        steps: int64 ``[C]``, SGD steps made.
        mean: weighted mean over the clients of each uploaded vector, with :meth:`ServerHalf.weights`.
        rows: ``[C, r]``, the entries of every client's model that the server half asked for (``rows``), or None.
        excluded: clients whose upload held NaN or infinity.
        loss: mean training loss over the samples processed during local training.
        accuracy: share of those samples that were predicted correctly when they were processed.
        client_samples: samples processed in training (forward and backward), summed over clients.
    """

    clients: torch.Tensor
    samples: torch.Tensor
    steps: torch.Tensor
    mean: Vectors
    rows: torch.Tensor | None
    excluded: tuple[int, ...]
    loss: float
    accuracy: float
    client_samples: int


@dataclass(frozen=True)
class ServerState:
    """Everything the server carries from round to round; all of it goes into the checkpoint.

    Attributes:
        model: the global model, ``[P]``.
        slots: further named tensors (an optimizer's moments, a control variate, ...).
    """

    model: torch.Tensor
    slots: Vectors = field(default_factory=dict)


class ServerHalf(ABC):
    """How a cohort's uploads become the next global state.

    Attributes:
        needs: names the clients must upload beside the model.
        broadcasts: names the server sends down beside the model.
        rows: which entries of every single client's model it must see (the mean is always there).
    """

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    @property
    def broadcasts(self) -> frozenset[str]:
        return frozenset()

    @property
    def rows(self) -> Rows:
        return "none"

    def check(self, rounds: int) -> None:
        """Refuse settings that cannot work in a run of this many rounds.

        Raises:
            InputError: naming the key and what is allowed.
        """

    def init(self, model: torch.Tensor, layout: Layout) -> ServerState:
        """The state before the first round, given the initial model ``[P]``."""
        return ServerState(model)

    def weights(self, samples: torch.Tensor) -> torch.Tensor:
        """Unnormalised weight of each client in the mean, from its sample count: float64 ``[C]``."""
        return samples.double()

    def broadcast(self, state: ServerState) -> Vectors:
        """What is sent down to every client of the cohort, the model included."""
        return {MODEL: state.model}

    @abstractmethod
    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        """The next state, and metrics of the step to be logged under ``server/``."""
