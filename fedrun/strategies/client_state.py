"""The vectors that clients keep between rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from fedrun.strategies.vectors import Vectors

PRIVATE = "private"
"""In a client's state: the entries of its model that never leave it (:meth:`ClientStrategy.private`)."""

OPTIMIZER = "momentum"
"""In a client's state: the optimizer's state, for strategies that keep it: SGD's momentum ``[T]``, or Adam's
``[2 T + 1]`` (:meth:`fedrun.strategies.local_training.LocalTraining.optimizer_state`)."""

LAST = "last"
"""In a client's state: the model that it sent last, ``[P]``, if it is compared or averaged later."""

Keep = Callable[["torch.Tensor"], "torch.Tensor"]
"""Makes a lasting copy of a vector on the CPU: in main memory, or in a memory-mapped file."""


def in_memory(vector: torch.Tensor) -> torch.Tensor:
    """A copy in main memory."""
    return vector.detach().cpu().clone()


@dataclass(frozen=True)
class ClientStates:
    """The vectors that each client has stored, by name.

    Immutable: a round makes new states, so an interrupted round leaves no trace. Only clients that have stored
    something are in :attr:`held`.

    Attributes:
        held: the stored vectors of each client, on the CPU; a client may lack some names.
        store: where vectors are kept.
    """

    held: Mapping[int, Vectors] = field(default_factory=dict)
    store: Keep = in_memory

    def of(self, client: int, lengths: Mapping[str, int], device: torch.device) -> Vectors:
        """The state of a client: a new vector of each name and length on the device, zeros if the client has not stored
        it. The vectors may be changed in place.
        """
        held = self.held.get(client, {})
        return {
            name: held[name].to(device, copy=True) if name in held else torch.zeros(length, device=device)
            for name, length in lengths.items()
        }

    def keep(self, vectors: Vectors) -> Vectors:
        """Lasting copies of vectors, for :meth:`updated`."""
        return {name: self.store(vector) for name, vector in vectors.items()}

    def updated(self, changes: Mapping[int, Vectors]) -> ClientStates:
        """The states in which these clients hold these vectors and no others."""
        kept = {client: vectors for client, vectors in {**self.held, **changes}.items() if vectors}
        return replace(self, held=kept) if changes else self
