"""FedOpt: an adaptive optimizer on the server, fed with the clients' mean displacement.

FedAdagrad, FedAdam and FedYogi: Reddi et al., ICLR 2021, arXiv 2003.00295, Algorithm 2. FedAMS: Wang, Lin, Chen, ICML
2022, arXiv 2205.00719. Published results often come from ``torch.optim`` instead, which is another algorithm under the
same name; ``variant`` says which. Notation: Δ = Σ p_k (y_k − x), the mean displacement; torch's gradient is −Δ.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Lt

from fedrun.config.config_class import config_class
from fedrun.models.flat_network import Layout
from fedrun.strategies.adam import Adam
from fedrun.strategies.contract import owner
from fedrun.strategies.server import CohortUpdate, Round, ServerState, WeightedServer
from fedrun.strategies.vectors import MODEL, Vectors
from fedrun.system.errors import InputError

Slots = dict[str, "torch.Tensor"]
Variant = Literal["torch", "reddi"]


@config_class
class FedOpt(WeightedServer):
    """m ← β₁ m + (1 − β₁) Δ;  x ← x + η_g m / (√v + τ), with v₀ = τ² and each method's own v.

    The optimizer changes the parameters only; buffers are averaged or frozen.

    Attributes (besides those of :class:`WeightedServer`):
        name: the prefix of the names of the optimizer's state.
        lr: η_g > 0, the server's learning rate.
        beta1: β₁ in [0, 1).
        eps: added to the denominator: τ of the papers, ε of torch; > 0.
        buffers: ``average``: float buffers (BatchNorm statistics) become the clients' weighted mean; ``frozen``: they
            stay at their initial values, as in code that gives the optimizer named parameters only.
    """

    name: ClassVar[str]

    lr: Annotated[float, Gt(0)]
    beta1: Annotated[float, Ge(0), Lt(1)]
    eps: Annotated[float, Gt(0)]
    buffers: Literal["average", "frozen"]

    @abstractmethod
    def second_moment(self, v: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        """The next v ``[T]``, a new tensor, given the last one and Δ ``[T]``."""

    def slots(self, parameters: torch.Tensor) -> Slots:
        """The optimizer's state before the first round, given the parameters ``[T]``."""
        m, v = torch.zeros_like(parameters), torch.full_like(parameters, self.eps**2)
        return {f"{self.name}/m": m, f"{self.name}/v": v}

    def step(self, parameters: torch.Tensor, delta: torch.Tensor, slots: Vectors) -> tuple[torch.Tensor, Slots]:
        """The parameters ``[T]`` after a step along Δ ``[T]``, which may be overwritten, and the next state."""
        # m ← β₁ m + (1 − β₁) Δ,  x ← x + η_g m / (√v + τ)
        m = moving_average(slots[f"{self.name}/m"], delta, self.beta1)
        v = self.second_moment(slots[f"{self.name}/v"], delta)
        moved = stepped(parameters, m, v.sqrt().add_(self.eps), self.lr)
        return moved, {f"{self.name}/m": m, f"{self.name}/v": v}

    def init(self, model: torch.Tensor, layout: Layout, clients: int) -> ServerState:
        return ServerState(model, self.slots(model[: layout.trainable]))

    def aggregate(self, state: ServerState, update: CohortUpdate, round: Round) -> tuple[ServerState, dict[str, float]]:
        trainable = round.layout.trainable
        x, model = state.model[:trainable], update.mean[MODEL]
        # Δ = Σ p_k y_k − x, in the mean's memory, as the next model is
        moved, slots = self.step(x, model[:trainable].sub_(x), state.slots)
        model[:trainable] = moved
        if self.buffers == "frozen":
            model[trainable:] = state.model[trainable:]
        return ServerState(model, {**state.slots, **slots}), {}


def stepped(parameters: torch.Tensor, m: torch.Tensor, root: torch.Tensor, lr: float) -> torch.Tensor:
    """x + η m / root, in the root's memory."""
    return torch.addcdiv(parameters, m, root, value=lr, out=root)


def moving_average(slot: torch.Tensor, value: torch.Tensor, beta: float) -> torch.Tensor:
    """β · slot + (1 − β) · value."""
    return slot.lerp(value, 1 - beta)


@config_class
class FedAdagrad(FedOpt):
    """v ← v + Δ². The paper has β₁ = 0.

    Attributes:
        variant: ``reddi``: v₀ = τ²; ``torch``: v₀ = 0 and no first moment, as in ``torch.optim.Adagrad``.
    """

    name: ClassVar[str] = "fedadagrad"

    variant: Variant

    def check(self, rounds: int) -> None:
        if self.variant == "torch" and self.beta1:
            raise InputError(
                f"strategy.server.beta1={self.beta1}: torch's Adagrad has no first moment; allowed with "
                "strategy.server.variant=torch: 0.0"
            )

    def slots(self, parameters: torch.Tensor) -> Slots:
        slots = super().slots(parameters)
        if self.variant == "torch":
            slots[f"{self.name}/v"].zero_()
        return slots

    def second_moment(self, v: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        # v ← v + Δ²
        return v.addcmul(delta, delta)


@config_class
class FedAdam(FedOpt):
    """v ← β₂ v + (1 − β₂) Δ².

    Attributes:
        beta2: β₂ in [0, 1).
        variant: ``torch``: bias-corrected Adam, as published results with ``torch.optim.Adam`` use it; ``reddi``: the
            paper's Algorithm 2, without bias correction and with v₀ = τ².
    """

    name: ClassVar[str] = "fedadam"

    beta2: Annotated[float, Ge(0), Lt(1)]
    variant: Variant

    @property
    def _adam(self) -> Adam:
        return Adam(self.lr, (self.beta1, self.beta2), self.eps)

    def check(self, rounds: int) -> None:
        if self.variant == "torch" and type(self).second_moment is not FedAdam.second_moment:
            raise InputError(
                f"{owner(self)}.second_moment: strategy.server.variant=torch does not use it, as torch's Adam computes "
                "its own; allowed: strategy.server.variant=reddi"
            )

    def slots(self, parameters: torch.Tensor) -> Slots:
        slots = self._adam.init(parameters, self.name)
        if self.variant == "reddi":
            slots[f"{self.name}/v"].fill_(self.eps**2)
        return slots

    def second_moment(self, v: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        # v ← β₂ v + (1 − β₂) Δ²
        return moving_average(v, delta.square(), self.beta2)

    def step(self, parameters: torch.Tensor, delta: torch.Tensor, slots: Vectors) -> tuple[torch.Tensor, Slots]:
        if self.variant == "torch":
            return self._adam.step(parameters, delta.neg_(), slots, self.name)
        return super().step(parameters, delta, slots)


@config_class
class FedYogi(FedOpt):
    """v ← v − (1 − β₂) Δ² sign(v − Δ²); torch has no Yogi.

    Attributes:
        beta2: β₂ in [0, 1).
    """

    name: ClassVar[str] = "fedyogi"

    beta2: Annotated[float, Ge(0), Lt(1)]

    def second_moment(self, v: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
        # v ← v − (1 − β₂) Δ² sign(v − Δ²)
        squared = delta.square()
        return v.addcmul(squared, (v - squared).sign_(), value=self.beta2 - 1)


@config_class
class FedAMS(FedAdam):
    """FedAdam whose second moment never falls, with v₀ = 0: v̂ ← max(v̂, v, ε);  x ← x + η_g m / √v̂.

    Attributes:
        variant: ``reddi``: the form of the FedAMS paper (option 1), without bias correction; ``torch``:
            ``torch.optim.Adam(amsgrad=True)``, bias-corrected, ε outside the root.
    """

    name: ClassVar[str] = "fedams"

    @property
    def _adam(self) -> Adam:
        return Adam(self.lr, (self.beta1, self.beta2), self.eps, amsgrad=True)

    def slots(self, parameters: torch.Tensor) -> Slots:
        return self._adam.init(parameters, self.name)

    def step(self, parameters: torch.Tensor, delta: torch.Tensor, slots: Vectors) -> tuple[torch.Tensor, Slots]:
        if self.variant == "torch":
            return super().step(parameters, delta, slots)
        # m ← β₁ m + (1 − β₁) Δ,  v̂ ← max(v̂, v, ε),  x ← x + η_g m / √v̂
        m = moving_average(slots[f"{self.name}/m"], delta, self.beta1)
        v = self.second_moment(slots[f"{self.name}/v"], delta)
        largest = torch.maximum(slots[f"{self.name}/v_max"], v).clamp_min(self.eps)
        moved = stepped(parameters, m, largest.sqrt(), self.lr)
        return moved, {f"{self.name}/m": m, f"{self.name}/v": v, f"{self.name}/v_max": largest}
