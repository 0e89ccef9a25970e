"""pFedMe: personal models in Moreau envelopes around the global one (Dinh, Tran, Nguyen, NeurIPS 2020, arXiv
2006.08848).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.client import ClientStrategy, Gradient
from fedrun.strategies.client_info import ClientInfo
from fedrun.strategies.vectors import MODEL, Vectors

PERSONAL = "personal"
"""θ_k, or the model evaluated in its place: ``[P]`` in the client's state, parameters ``[T]`` in local training."""


@config_class
class PFedMe(ClientStrategy):
    """A local model w follows the personal model θ, which stays near it; w is sent.

    Both start at the broadcast model in every round. For every batch, θ makes K steps on its loss + λ/2 ‖θ − w‖², and
    then w one step of rate ``local.lr`` towards θ. The paper's R batches per round are ``local.steps``; its server's
    β ≠ 1 is ``strategy/server=fedavgm strategy.server.momentum=0 strategy.server.lr=β``.
    ``local.weight_decay`` decays w. Only participants train; the published code trains all clients in every round.

    Attributes:
        strength: λ ≥ 0 of the pull. Steps are stable for ``local.lr`` · λ < 2 and personal_lr · (L + λ) < 2.
        personal_steps: K ≥ 1, steps of θ per batch.
        personal_lr: their rate, > 0.
        personal_decay: μ ≥ 0 of a term μ/2 ‖θ‖²; the paper has 0, its code 0.001.
        inner_start: where θ starts for a batch: ``warm``: at its value after the previous batch; ``local``: at w.
        evaluate: the model by which a client is evaluated: ``personal``: θ; ``local``: w, as in the published code.
    """

    strength: Annotated[float, Ge(0)]
    personal_steps: Annotated[int, Ge(1)]
    personal_lr: Annotated[float, Gt(0)]
    personal_decay: Annotated[float, Ge(0)]
    inner_start: Literal["warm", "local"]
    evaluate: Literal["personal", "local"]

    assumes_sgd: ClassVar[bool] = True

    @property
    def passes(self) -> tuple[int, ...]:
        return (self.personal_steps,)

    def client_state(self, layout: Layout) -> dict[str, int]:
        return {PERSONAL: layout.size}

    def carried(self, layout: Layout) -> slice:
        # the personal model is evaluated as a whole, and begins anew at each broadcast
        return slice(0, 0)

    def own_model(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> torch.Tensor:
        return client_state[PERSONAL]

    def constants(self, received: Vectors, client_state: Vectors, client: ClientInfo) -> Vectors:
        begun = received[MODEL].expand_as(client_state[PERSONAL])
        return {PERSONAL: begun[..., : client.trainable].clone()}

    def direction(self, gradient: Gradient, model: torch.Tensor, constants: Vectors) -> torch.Tensor:
        personal = constants[PERSONAL]
        if self.inner_start == "local":
            personal.copy_(model)
        for _ in range(self.personal_steps):
            # θ ← θ − η_p (g(θ) + λ (θ − w) + μ θ)
            pull = self.strength * (personal - model) + self.personal_decay * personal
            personal -= self.personal_lr * (gradient(personal, 0) + pull)
        # w ← w − η λ (w − θ)
        return self.strength * (model - personal)

    def finish(
        self, model: torch.Tensor, received: Vectors, client_state: Vectors, constants: Vectors, client: ClientInfo
    ) -> tuple[Vectors, Vectors]:
        personal = torch.cat([constants[PERSONAL], model[..., client.trainable :]], -1)
        return {MODEL: model}, {PERSONAL: personal if self.evaluate == "personal" else model}
