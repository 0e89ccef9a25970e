"""The base of transforms of updates between client and server, with a hook on either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from fedrun.strategies.server import CohortUpdate, Round, Senders
from fedrun.strategies.vectors import Vectors
from fedrun.system.randomness import generator

FLOAT = 4
"""Bytes of an uncompressed number."""


@dataclass(frozen=True)
class Shape:
    """The structure of a displacement's entries.

    Attributes:
        layers: the sizes of its parameter tensors, in order.
        head: number of the last entries that are the head's.
    """

    layers: tuple[int, ...]
    head: int

    @property
    def entries(self) -> int:
        """d, the length of the displacement."""
        return sum(self.layers)


@dataclass(frozen=True)
class Sender:
    """The client whose upload is transformed.

    Attributes:
        client: its number.
        round: t, 0 in the first round.
        seed: the run's seed.
        received: what the client has received, including the vectors of :meth:`UploadTransform.broadcast`.
        state: the client's state of the transforms, by the names of :meth:`UploadTransform.client_state`.
        shapes: shapes of its displacements, by name.
    """

    client: int
    round: int
    seed: int
    received: Vectors
    state: Vectors
    shapes: Mapping[str, Shape]

    def draw(self, purpose: str) -> torch.Generator:
        """A generator on the CPU for this purpose, round and client."""
        return generator(self.seed, purpose, self.round, self.client)


@dataclass(frozen=True)
class Sent:
    """The result of one transform of a client's upload, or of all of them.

    Attributes:
        vectors: by names of uploads, the decoded float32 displacements that the transform has changed, or after
            all transforms the uploads as the server receives them.
        state: the client's next state.
        measures: numbers to be logged as means over the cohort; the server's side receives them, too.
    """

    vectors: Vectors
    state: Vectors = field(default_factory=dict)
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Combined:
    """A cohort's transformed mean.

    Attributes:
        displacements: mean displacements by the names of the uploads.
        slots: the server's next state for the transform.
        metrics: metrics of the step.
        clients: the number of clients that the means represent.
    """

    displacements: Vectors
    slots: Vectors
    metrics: Mapping[str, float]
    clients: float


class UploadTransform:
    """Uploads stay as they are; the base of compression, privacy and secure sums.

    A transform works on *displacements*: y_k − x over the model's parameters, and the parameters' part ``[T]`` of a
    strategy's other vectors. Single numbers and float buffers are not transformed. Vectors are one client's.
    """

    @property
    def changes_uploads(self) -> bool:
        """Whether :meth:`send` changes anything."""
        return type(self).send is not UploadTransform.send

    @property
    def changes_means(self) -> bool:
        """Whether :meth:`combine` changes anything."""
        return type(self).combine is not UploadTransform.combine

    def client_state(self, entries: Mapping[str, int]) -> dict[str, int]:
        """The lengths of the vectors that a client keeps between its rounds, given those of its displacements."""
        return {}

    def weights(self, senders: Senders) -> torch.Tensor | None:
        """The clients' weights in the mean, float64 ``[C]``; None: the strategy's."""
        return None

    def slots(self) -> Vectors:
        """The server's state before the first round."""
        return {}

    def broadcast(self, slots: Vectors) -> Vectors:
        """The part of the server's state that clients need."""
        return {}

    def send(self, displacements: Vectors, sender: Sender) -> Sent:
        """The client's side.

        Args:
            displacements: finite float32 vectors ``[d]`` by name; they may be overwritten.
            sender: the client.
        """
        return Sent({})

    def combine(self, displacements: Vectors, update: CohortUpdate, slots: Vectors, round: Round) -> Combined:
        """The server's side, between the mean over the cohort and the strategy's step.

        Args:
            displacements: weighted means by name; they may be overwritten.
            update: the cohort's update, with its measures and its total weight.
            slots: the server's state for the transform.
            round: the round.
        """
        return Combined(displacements, {}, {}, len(update.clients))

    @property
    def changes_downloads(self) -> bool:
        """Whether :meth:`download` changes anything."""
        return type(self).download is not UploadTransform.download

    def download(self, parameters: torch.Tensor) -> torch.Tensor:
        """The parameters that clients receive, float32 ``[d]``; the argument is not changed."""
        return parameters

    def download_bytes(self, entries: int, clients: torch.Tensor, slots: Vectors) -> torch.Tensor | None:
        """Bytes in which each client receives these parameters of the model, int64 ``[n]``; None: 4 for each parameter.

        Args:
            entries: the number of parameters that a client receives.
            clients: the clients that receive the model, int64 ``[n]``.
            slots: the server's state for the transform before the round; empty if there are several models.
        """
        return None

    def upload_bytes(self, shape: Shape) -> int | None:
        """Bytes of an upload's displacement of this shape; None: the transform does not change them."""
        return None

    def extra_bytes(self) -> int:
        """Bytes added to every client's upload."""
        return 0
