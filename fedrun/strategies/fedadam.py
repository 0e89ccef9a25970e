"""FedAdam: Adam on the server, fed with the clients' mean displacement (Reddi et al., ICLR 2021, arXiv 2003.00295)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Lt
from pydantic.dataclasses import dataclass

from fedrun.parameters import Layout
from fedrun.recipe import STRICT
from fedrun.strategies.adam import Adam
from fedrun.strategies.base import MODEL, CohortUpdate, Round, ServerHalf, ServerState
from fedrun.strategies.fedavg import Weighting, client_weights

MOMENTS = "fedadam"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FedAdam(ServerHalf):
    """Adam on the pseudo-gradient −Δ, with Δ = Σ p_k (y_k − x).

    Attributes:
        lr: η_g > 0, the server's learning rate.
        beta1: β₁ in [0, 1).
        beta2: β₂ in [0, 1).
        variant: ``torch``: bias-corrected Adam, as published results with ``torch.optim.Adam`` use it; ``reddi``: the
            paper's Algorithm 2, without bias correction and with v₀ = τ².
        eps: ε of ``torch``, τ of ``reddi``; > 0.
        weighting: of the clients in Δ: ``samples`` or ``uniform``.
        buffers: ``average``: float buffers (BatchNorm statistics) become the clients' weighted mean; ``frozen``: they
            stay at their initial values, as in code that gives the optimizer named parameters only.
    """

    lr: Annotated[float, Gt(0)]
    beta1: Annotated[float, Ge(0), Lt(1)]
    beta2: Annotated[float, Ge(0), Lt(1)]
    variant: Literal["torch", "reddi"]
    eps: Annotated[float, Gt(0)]
    weighting: Weighting
    buffers: Literal["average", "frozen"]

    @property
    def _adam(self) -> Adam:
        return Adam(self.lr, (self.beta1, self.beta2), self.eps)

    def init(self, model: torch.Tensor, layout: Layout) -> ServerState:
        slots = self._adam.init(model[: layout.trainable], MOMENTS)
        if self.variant == "reddi":
            slots[f"{MOMENTS}/v"].fill_(self.eps**2)
        return ServerState(model, slots)

    def weights(self, samples: torch.Tensor) -> torch.Tensor:
        return client_weights(samples, self.weighting)

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        trainable = round.layout.trainable
        x = state.model[:trainable]
        delta = update.mean[MODEL][:trainable] - x
        if self.variant == "torch":
            moved, slots = self._adam.step(x, -delta, state.slots, MOMENTS)
        else:
            # m ← β₁ m + (1 − β₁) Δ;  v ← β₂ v + (1 − β₂) Δ²;  x ← x + η_g m / (√v + τ)
            m = state.slots[f"{MOMENTS}/m"].lerp(delta, 1 - self.beta1)
            v = (self.beta2 * state.slots[f"{MOMENTS}/v"]).addcmul_(delta, delta, value=1 - self.beta2)
            moved = x + self.lr * m / (v.sqrt() + self.eps)
            slots = {**state.slots, f"{MOMENTS}/m": m, f"{MOMENTS}/v": v}
        source = update.mean[MODEL] if self.buffers == "average" else state.model
        return ServerState(torch.cat([moved, source[trainable:]]), slots), {}
