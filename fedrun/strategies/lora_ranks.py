"""Clients with low-rank adapters of different ranks (FLoRA's setting, Wang et al., NeurIPS 2024, arXiv 2409.05976)."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, MinLen

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.lora import required_adapters
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError


@config_class
class LoRARanks(ClientStrategy):
    """Plain local SGD of adapters of rank r_k: the first r_k rows of A and columns of B; the others are zero.

    The model has adapters of the greatest rank. Where a row of A and the column of B are both zero, so are their
    gradients, and no optimizer moves them. So FLoRA's sum of products is that of the small adapters, and FedIT is the
    zero-padding baseline. A client begins with the first r_k rows and columns of what it receives. The scale is the
    model's alpha / rank for all, as in FLoRA's setting with alpha_k = 2 r_k.

    Attributes:
        ranks: r_k ≥ 1; client k has the rank numbered k modulo the length of the list.
    """

    ranks: Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)]

    def absent(self, layout: Layout, clients: torch.Tensor) -> torch.Tensor:
        ranks, numbers = self._ranks_of(clients), torch.zeros(len(clients), dtype=torch.int64)
        for adapter in required_adapters(layout, "strategy/client=lora_ranks"):
            rank, inputs = adapter.a.shape
            if max(self.ranks) > rank:
                raise InputError(
                    f"strategy.client.ranks: {max(self.ranks)} is above model.lora.rank={rank}; allowed: 1 to {rank}"
                )
            numbers += (rank - ranks) * (inputs + adapter.b.shape[0])
        return numbers

    def start(self, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo) -> torch.Tensor:
        model = received[MODEL].expand(*client.is_new.shape[:-1], -1).clone()
        ranks = self._ranks_of(client.clients).to(model.device)[..., None]
        for adapter in required_adapters(client.layout, "strategy/client=lora_ranks"):
            beyond = torch.arange(adapter.a.shape[0], device=model.device) >= ranks
            adapter.a.view(model).masked_fill_(beyond[..., :, None], 0.0)
            adapter.b.view(model).masked_fill_(beyond[..., None, :], 0.0)
        return model

    def _ranks_of(self, clients: torch.Tensor) -> torch.Tensor:
        """r_k of clients by their numbers, int64 ``[...]``."""
        return torch.tensor(self.ranks)[clients % len(self.ranks)]
