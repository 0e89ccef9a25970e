"""Numbers to predict for each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedrun.data.constants import constants
from fedrun.data.tasks.base import SampleResults, Task, require_shape
from fedrun.system.errors import InputError


@dataclass(frozen=True)
class Regression(Task):
    """Targets are k numbers per sample, float32 ``[n, k]``; the loss is the squared error, averaged over the k numbers.

    A model's outputs are in units in which targets have mean 0 and standard deviation 1; so is the loss. Predictions
    and metrics are in the targets' own units. Metrics: MAE, RMSE, R², each a plain mean over the k numbers.

    Attributes:
        mean: mean of the training targets, one number per output or one for all.
        std: their standard deviations, above 0, in the same form.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    measures: ClassVar[tuple[str, ...]] = ("mae", "rmse", "r2")

    def check_targets(self, targets: torch.Tensor, outputs: int, where: str) -> None:
        require_shape(targets, (outputs,), "numbers", where)
        if not targets.is_floating_point() or not targets.isfinite().all():
            raise InputError(f"{where}: targets of {targets.dtype}, or not finite; allowed: finite float32 numbers")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, outputs):
                raise InputError(
                    f"{where}: the {name} of Regression has {len(values)} numbers; allowed: 1 or {outputs}"
                )
        if not all(map(math.isfinite, (*self.mean, *self.std))) or min(self.std) <= 0:
            raise InputError(f"{where}: {self}; allowed: finite numbers, with every std above 0")

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        # (1/k) Σ_j (f_j(x) − (y_j − m_j) / s_j)²
        mean, std = (constants(values, targets.dtype, targets.device) for values in (self.mean, self.std))
        scaled = (targets - mean) / std
        return (outputs - scaled).square().mean(-1)

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        mean, std = (constants(values, outputs.dtype, outputs.device) for values in (self.mean, self.std))
        return outputs * std + mean

    def scores(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (predictions - targets).abs().mean(-1)

    def metrics(self, results: SampleResults, outputs: int) -> dict[str, float]:
        targets, errors = results.targets.double(), (results.predictions - results.targets).double()
        residual, total = errors.square().sum(0), (targets - targets.mean(0)).square().sum(0)
        return {
            "mae": errors.abs().mean().item(),
            "rmse": errors.square().mean(0).sqrt().mean().item(),
            # 1 − Σ (y − ŷ)² / Σ (y − ȳ)²; NaN if all targets are equal
            "r2": torch.where(total > 0, 1 - residual / total, torch.nan).mean().item(),
        }
