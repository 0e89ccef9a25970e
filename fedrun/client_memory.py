"""What clients remember between their rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from fedrun.strategies.base import Vectors


@dataclass(frozen=True)
class ClientMemory:
    """Named vectors per client, ``[T]`` unless said otherwise: zeros until a client first stores something.

    A value: a round makes a new memory, so an interrupted round leaves no trace. Only clients that have taken part hold
    anything; all of it lies in main memory and goes into the checkpoint.

    Attributes:
        names: of the vectors.
        trainable: T.
        lengths: of those vectors that are not ``[T]``.
        held: what the clients that have taken part remember, on the CPU.
    """

    names: tuple[str, ...]
    trainable: int
    held: Mapping[int, Vectors] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)

    def of(self, client: int, device: torch.device) -> Vectors:
        """What a client remembers: a vector on the device for each name."""
        if client in self.held:
            return {name: self.held[client][name].to(device) for name in self.names}
        return {name: torch.zeros(self.lengths.get(name, self.trainable), device=device) for name in self.names}

    def updated(self, changes: Mapping[int, Vectors]) -> ClientMemory:
        """The memory after these clients have stored these vectors."""
        return replace(self, held={**self.held, **changes}) if self.names else self
