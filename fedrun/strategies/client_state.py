"""What clients remember between their rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from fedrun.strategies.vectors import Vectors

IDLE = "idle"
"""In a client's memory: the displacement of the parameters by training that was not sent up, ``[T]``."""

LAST = "last"
"""In a client's memory: the model that it has last sent, ``[P]``, where it is compared or averaged later."""

MOMENTUM = "momentum"
"""In a client's memory: the optimizer's momentum ``[T]``, for halves that keep it."""

Keep = Callable[["torch.Tensor"], "torch.Tensor"]
"""Makes a lasting copy of a vector on the CPU: in main memory, or in a memory-mapped file."""


def in_memory(vector: torch.Tensor) -> torch.Tensor:
    """A copy in main memory."""
    return vector.detach().cpu().clone()


@dataclass(frozen=True)
class ClientStates:
    """Named vectors per client, ``[T]`` unless said otherwise: zeros until a client first stores something.

    A value: a round makes a new memory, so an interrupted round leaves no trace. Only clients that have taken part hold
    anything.

    Attributes:
        names: of the vectors.
        trainable: T.
        held: what the clients that have taken part remember, on the CPU; a client need not hold every name.
        lengths: of those vectors that are not ``[T]``.
        store: where vectors are kept.
    """

    names: tuple[str, ...]
    trainable: int
    held: Mapping[int, Vectors] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    store: Keep = in_memory

    def of(self, client: int, device: torch.device) -> Vectors:
        """What a client remembers: a vector on the device for each name."""
        held = self.held.get(client, {})
        return {
            name: held[name].to(device)
            if name in held
            else torch.zeros(self.lengths.get(name, self.trainable), device=device)
            for name in self.names
        }

    def keep(self, vectors: Vectors) -> Vectors:
        """Lasting copies of vectors, for :meth:`updated`."""
        return {name: self.store(vector) for name, vector in vectors.items()}

    def updated(self, changes: Mapping[int, Vectors]) -> ClientStates:
        """The memory after these clients have come to hold these vectors, and nothing else."""
        kept = {client: vectors for client, vectors in {**self.held, **changes}.items() if vectors}
        return replace(self, held=kept) if changes else self


NO_STATE = ClientStates((), 0)
"""The memory of clients that remember nothing."""
