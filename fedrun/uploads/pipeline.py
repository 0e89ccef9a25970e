"""The transforms of updates on their way from client to server, and of the model on its way to a client, with their
costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from fedrun.models.flat_network import Layout
from fedrun.strategies.server import CohortUpdate, Round, Senders
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.uploads.transform import FLOAT, Sender, Sent, Shape, UploadTransform
from fedrun.uploads.transform_contract import check_metrics, check_sent


@dataclass(frozen=True)
class UploadPipeline:
    """Transforms in the order in which an update passes them.

    Attributes:
        transforms: those of the experiment. The hooks of a transform that is not used change nothing.
        layout: the position of every tensor in a model's vector.
        seed: the run's seed.
        private: which entries of a model never leave the client, bool ``[P]``; None: none.
    """

    transforms: Sequence[UploadTransform]
    layout: Layout
    seed: int
    private: torch.Tensor | None = None

    @property
    def changes_uploads(self) -> bool:
        """Whether any transform changes uploads."""
        return any(transform.changes_uploads for transform in self.transforms)

    @property
    def changes_downloads(self) -> bool:
        """Whether clients receive a model that differs from the server's."""
        return any(transform.changes_downloads for transform in self.transforms)

    @cached_property
    def _shared(self) -> torch.Tensor | None:
        """Which parameters of a model leave the client, bool ``[T]``; None: all."""
        return None if self.private is None else ~self.private[: self.layout.trainable]

    @cached_property
    def _shapes(self) -> tuple[Shape, Shape]:
        """Of a model's displacement, and of those of other uploads."""
        slots = [slot for slot in self.layout.slots if slot.stop <= self.layout.trainable]
        whole = Shape(tuple(slot.stop - slot.start for slot in slots), self.layout.head_size)
        shared, head = self._shared, self.layout.head
        if shared is None:
            return whole, whole
        sizes = [int(shared[slot.start : slot.stop].sum()) for slot in slots]
        return Shape(tuple(size for size in sizes if size), int(shared[head].sum())), whole

    def _shape(self, name: str) -> Shape:
        return self._shapes[0] if name == MODEL else self._shapes[1]

    def client_state(self, sends: frozenset[str]) -> dict[str, int]:
        """The lengths of the vectors that a client keeps for the transforms, where it uploads these names."""
        entries = {name: self._shape(name).entries for name in sends}
        return {name: size for transform in self.transforms for name, size in transform.client_state(entries).items()}

    def weights(self, senders: Senders) -> torch.Tensor | None:
        """The clients' weights in the mean, float64 ``[C]``, if a transform sets them; None: the strategy's."""
        weights = (transform.weights(senders) for transform in self.transforms)
        return next((each for each in weights if each is not None), None)

    def slots(self) -> Vectors:
        """The transforms' state on the server before the first round."""
        return {name: slot for transform in self.transforms for name, slot in transform.slots().items()}

    def broadcast(self, slots: Vectors) -> dict[str, torch.Tensor]:
        """The part of the transforms' state on the server that clients need."""
        return {name: value for transform in self.transforms for name, value in transform.broadcast(slots).items()}

    def download(self, model: torch.Tensor) -> torch.Tensor:
        """x̂, the rounded model that clients receive for x ``[P]``; private entries are not rounded."""
        rounded = parameters = model[: self.layout.trainable]
        for transform in self.transforms:
            rounded = transform.download(rounded)
        if self._shared is not None:
            rounded = torch.where(self._shared.to(model.device), rounded, parameters)
        return torch.cat([rounded, model[self.layout.trainable :]])

    def bytes_down(self, numbers: int, clients: torch.Tensor, slots: Vectors) -> torch.Tensor:
        """Bytes that each of some clients downloads, int64 ``[n]``.

        Args:
            numbers: how many numbers each receives, one model's included.
            clients: int64 ``[n]``.
            slots: the transforms' state on the server before the round; empty if there are several models.
        """
        entries = self._shapes[0].entries
        received = torch.full((len(clients),), FLOAT * numbers)
        for transform in self.transforms:
            if (size := transform.download_bytes(entries, clients, slots)) is not None:
                received += size - FLOAT * entries
        return received

    def send(self, uploads: Vectors, received: Vectors, state: Vectors, round: int, client: int) -> Sent:
        """One client's uploads as the server receives them.

        Args:
            uploads: those of its strategy.
            received: the broadcast.
            state: the client's state, by name.
            round: t, 0 in the first round.
            client: its number.

        Returns:
            The decoded uploads, with the transforms' measurements and next states. Uploads that are not finite are not
            changed and have no next state.
        """
        arrived = {name: vector.clone() for name, vector in uploads.items() if self.is_transformed(len(vector))}
        displacements = self._displacements(arrived, received)
        if not all(map(_is_finite, displacements.values())):
            return Sent(uploads)
        sender = Sender(client, round, self.seed, received, state, {name: self._shape(name) for name in displacements})
        changed, after, measures = dict[str, torch.Tensor](), dict[str, torch.Tensor](), dict[str, float]()
        for transform in self.transforms:
            given = {**displacements, **changed}
            sent = transform.send(given, sender)
            check_sent(transform, sent, given)
            changed |= sent.vectors
            after |= sent.state
            measures |= sent.measures
        # unchanged uploads are passed on without a rounding error
        self._move(arrived, received, changed)
        return Sent({**uploads, **{name: arrived[name] for name in changed}}, after, measures)

    def combine(
        self, update: CohortUpdate, received: Vectors, slots: Vectors, round: Round
    ) -> tuple[CohortUpdate, Vectors, dict[str, float]]:
        """A cohort's update as the strategy's server side sees it.

        Args:
            update: the cohort's update, with means, which may be overwritten.
            received: the broadcast.
            slots: the transforms' state on the server.
            round: the round.

        Returns:
            The update, the transforms' next slots, and metrics.
        """
        metrics = {name: float(values.mean()) for name, values in update.measures.items() if len(values)}
        after: dict[str, torch.Tensor] = {}
        for transform in (each for each in self.transforms if each.changes_means):
            displacements = self._displacements(update.mean, received)
            combined = transform.combine(displacements, update, slots, round)
            check_metrics(transform, "combine", combined.metrics)
            self._move(update.mean, received, {**displacements, **combined.displacements})
            update = replace(update, represented=combined.clients)
            after |= combined.slots
            metrics |= combined.metrics
        return update, after, metrics

    def bytes_up(self, lengths: Mapping[str, int]) -> int:
        """Bytes that one client uploads, given the lengths of its uploads: buffers and single numbers in float32."""
        total = sum(transform.extra_bytes() for transform in self.transforms)
        for name, length in lengths.items():
            kept = self.layout.size - self.layout.uploaded if name == MODEL else 0
            kept += int(self.private[:length].sum()) if self.private is not None and name == MODEL else 0
            total += FLOAT * (length - kept)
            if self.is_transformed(length):
                shape = self._shape(name)
                sizes = [transform.upload_bytes(shape) for transform in self.transforms]
                changed = next((size for size in sizes if size is not None), FLOAT * shape.entries)
                total += changed - FLOAT * shape.entries
        return total

    def is_transformed(self, length: int) -> bool:
        """Whether an upload of this length holds all parameters of a model, with its buffers or without."""
        return length in (self.layout.trainable, self.layout.size)

    def _displacements(self, vectors: Vectors, received: Vectors) -> dict[str, torch.Tensor]:
        """The displacements that transforms process, by name. They overwrite the vectors' parameters: new memory would
        cost more than the subtraction. :meth:`_move` restores the vectors.
        """
        displacements = {}
        for name, vector in vectors.items():
            if not self.is_transformed(len(vector)):
                continue
            displacement = vector[: self.layout.trainable]
            if name == MODEL:
                anchor, shared = received[MODEL][: self.layout.trainable], self._shared
                if shared is None:
                    displacement.sub_(anchor)
                else:
                    shared = shared.to(vector.device)
                    displacement = displacement[shared] - anchor[shared]
            if len(displacement):
                displacements[name] = displacement
        return displacements

    def _move(self, vectors: Vectors, received: Vectors, displacements: Vectors) -> None:
        """Replace the displacements of vectors, in place; they may lie in the vectors' own memory."""
        for name, displacement in displacements.items():
            parameters = vectors[name][: self.layout.trainable]
            if name != MODEL:
                parameters.copy_(displacement)
            elif self._shared is None:
                torch.add(received[MODEL][: self.layout.trainable], displacement, out=parameters)
            else:
                shared = self._shared.to(parameters.device)
                parameters[shared] = received[MODEL][: self.layout.trainable][shared] + displacement


def _is_finite(vector: torch.Tensor) -> bool:
    """Whether every entry is finite. The norm is computed faster than a sum, and overflows sooner."""
    return bool(torch.linalg.vector_norm(vector).isfinite()) or bool(vector.sum().isfinite())
