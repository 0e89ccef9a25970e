"""Adam as a pure function, for server strategies whose optimizer state is part of the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrun.strategies.vectors import Vectors


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba, 2015) with bias correction and ε outside the root, as in ``torch.optim.Adam``.

    Attributes:
        lr: step size.
        betas: β₁, β₂, the decay rates of the first and the second moment.
        eps: ε, added to the root of the corrected second moment.
        amsgrad: divide by the largest second moment so far (Reddi, Kale, Kumar, 2018).
    """

    lr: float
    betas: tuple[float, float]
    eps: float
    amsgrad: bool = False

    def init(self, parameters: torch.Tensor, name: str) -> dict[str, torch.Tensor]:
        """The state before the first step, under keys that begin with ``name``."""
        largest = {f"{name}/v_max": torch.zeros_like(parameters)} if self.amsgrad else {}
        return {
            f"{name}/m": torch.zeros_like(parameters),
            f"{name}/v": torch.zeros_like(parameters),
            f"{name}/step": torch.zeros((), dtype=torch.int64),
            **largest,
        }

    def step(
        self, parameters: torch.Tensor, gradient: torch.Tensor, slots: Vectors, name: str
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The parameters after one step against the gradient (any one shape), and the optimizer's next state."""
        beta1, beta2 = self.betas
        step = slots[f"{name}/step"] + 1
        m = slots[f"{name}/m"].lerp(gradient, 1 - beta1)
        v = (beta2 * slots[f"{name}/v"]).addcmul_(gradient, gradient, value=1 - beta2)
        count = int(step)
        largest = {f"{name}/v_max": torch.maximum(slots[f"{name}/v_max"], v)} if self.amsgrad else {}
        root = (largest.get(f"{name}/v_max", v) / (1 - beta2**count)).sqrt_().add_(self.eps)
        moved = torch.addcdiv(parameters, m, root, value=-self.lr / (1 - beta1**count), out=root)
        return moved, {f"{name}/m": m, f"{name}/v": v, f"{name}/step": step, **largest}
