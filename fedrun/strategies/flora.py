"""FLoRA: the clients' adapters are stacked and merged (Wang et al., NeurIPS 2024, arXiv 2409.05976)."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.models.lora_layout import adapters_of
from fedrun.strategies.lora import ResidualServer
from fedrun.strategies.server import CohortUpdate, Round, ServerState
from fedrun.strategies.vectors import MODEL
from fedrun.system.randomness import generator


@config_class
class FLoRA(ResidualServer):
    """W0 + s Σ_k p_k B_k A_k in each round, which continues from new adapters: a new random A, and B = 0.

    The sum over all rounds is the residual R of W0 + s (R + B A): a client that has skipped rounds needs it, not the
    last round's stacks.
    """

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        assert update.rows is not None
        shares = update.shares.to(update.rows)[:, None, None]
        model, draw = update.mean[MODEL], generator(round.seed, "lora", round.index)
        ranks = {}
        for adapter in adapters_of(round.layout):
            assert adapter.residual is not None
            a, b = adapter.a.view(model), adapter.b.view(model)
            # A = [p_1 A_1; ..; p_M A_M] and B = [B_1, .., B_M]: B A = Σ_k p_k B_k A_k
            stacked_a = (shares * adapter.a.view(update.rows)).flatten(0, 1)
            stacked_b = adapter.b.view(update.rows).movedim(0, 1).flatten(1)
            adapter.residual.view(model).addmm_(stacked_b, stacked_a)
            # rows of zeros are those of clients with a smaller rank
            ranks[adapter] = int(stacked_a.any(1).sum())
            bound = a.shape[1] ** -0.5
            a.copy_(torch.empty(a.shape).uniform_(-bound, bound, generator=draw))
            b.zero_()
        return self.next_state(model, update, ranks), {}
