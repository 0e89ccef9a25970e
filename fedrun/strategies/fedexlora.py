"""FedEx-LoRA: averaged adapters, and the residual that averaging loses (Singhal et al., ACL 2025, arXiv 2410.09432)."""

from __future__ import annotations

from typing import Literal

import torch

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.models.lora_layout import Adapter, adapters_of
from fedrun.strategies.lora import ResidualServer
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.system.errors import InputError


@config_class
class FedExLoRA(ResidualServer):
    """The weighted means A and B, and W0 ← W0 + s (Σ_k p_k B_k A_k − B A), which makes W0 + s B A exact.

    The sum of these parts over all rounds is the residual R of W0 + s (R + B A). The paper's code weights all clients
    alike (``weighting=uniform``).

    Attributes:
        residual: ``exact``: the paper's. ``transposed``: the published code adds the transpose to the square weights of
            linear layers.
    """

    residual: Literal["exact", "transposed"]

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        state = super().init(model, layout, clients)
        for adapter in adapters_of(layout):
            shape = _residual(adapter, model).shape
            if self.residual == "transposed" and shape[0] != shape[1]:
                raise InputError(
                    f"strategy.server.residual=transposed: {adapter.a.name.partition('.lora_A')[0]} has weights of "
                    f"shape {shape[0]}x{shape[1]}; allowed: square ones"
                )
        return state

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        shares = update.shares.to(update.rows)
        model, ranks = update.mean[MODEL], {}
        for adapter in adapters_of(round.layout):
            # R ← R + Σ_k p_k B_k A_k − B A
            missing = torch.tensordot(shares, adapter.product(update.rows), 1) - adapter.product(model)
            _residual(adapter, model).add_(missing.T if self.residual == "transposed" else missing)
            # Σ_{k<M} p_k (B_k − B) (A_k − A_M), of rank (M − 1) r at most
            ranks[adapter] = (len(update.clients) - 1) * adapter.a.shape[0]
        return self.next_state(model, update, ranks), {}


def _residual(adapter: Adapter, model: torch.Tensor) -> torch.Tensor:
    assert adapter.residual is not None
    return adapter.residual.view(model)
