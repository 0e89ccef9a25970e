"""FedPer: a common encoder, every client with a head of its own (Arivazhagan et al., 2019, arXiv 1912.00818)."""

from __future__ import annotations

from typing import ClassVar

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientInfo, ClientStrategy
from fedrun.strategies.vectors import MODEL, Vectors

HEAD = "head"
"""The client's own head, in its memory."""


@config_class
class FedPer(ClientStrategy):
    """Plain local SGD of the whole network; only the encoder is sent, the head stays with the client.

    A client's head begins as the common initial one. The tests are of the global encoder with the client's own head.
    """

    remembers_heads: ClassVar[frozenset[str]] = frozenset({HEAD})
    personal: ClassVar[str | None] = HEAD
    keeps_head: ClassVar[bool] = True

    def start(self, received: Vectors, memory: Vectors, client: ClientInfo) -> torch.Tensor:
        assert client.head is not None
        common = received[MODEL][..., client.head]
        own = memory[HEAD]
        # memory is zero until a client has trained
        return _with_head(received[MODEL], torch.where(own.any(-1, keepdim=True), own, common), client.head)

    def finish(
        self, model: torch.Tensor, received: Vectors, memory: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        assert client.head is not None
        own = model[..., client.head]
        return {MODEL: _with_head(model, received[MODEL][..., client.head].expand_as(own), client.head)}, {HEAD: own}

    def own_model(self, model: torch.Tensor, kept: torch.Tensor, layout: Layout) -> torch.Tensor:
        return _with_head(model, kept, layout.head)


def _with_head(model: torch.Tensor, head: torch.Tensor, where: slice) -> torch.Tensor:
    """Models ``[..., P]`` with other heads ``[..., h]``."""
    before = model[..., : where.start].expand(*head.shape[:-1], -1)
    after = model[..., where.stop :].expand(*head.shape[:-1], -1)
    return torch.cat([before, head, after], -1)
