"""What clients remember between their rounds."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fedrun.strategies.base import Vectors


class ClientMemory:
    """Named vectors ``[T]`` per client; zeros until a client first stores something.

    Only clients that have taken part hold anything. The content is kept on the CPU and goes into the checkpoint.
    """

    def __init__(self, names: Iterable[str], trainable: int, device: torch.device) -> None:
        self._names = sorted(names)
        self._zeros = torch.zeros(trainable, device=device)
        self._device = device
        self._held: dict[int, dict[str, torch.Tensor]] = {}

    def get(self, client: int) -> Vectors:
        """What a client remembers; a vector for each name."""
        if client not in self._held:
            return {name: self._zeros for name in self._names}
        return {name: vector.to(self._device) for name, vector in self._held[client].items()}

    def put(self, client: int, vectors: Vectors) -> None:
        """Remember these vectors (copied) instead of the former ones."""
        if self._names:
            self._held[client] = {name: vectors[name].detach().cpu().clone() for name in self._names}

    def state(self) -> dict[int, dict[str, torch.Tensor]]:
        """Everything held, for the checkpoint."""
        return self._held

    def restore(self, state: dict[int, dict[str, torch.Tensor]]) -> None:
        """Replace everything held by what :meth:`state` returned."""
        self._held = state
