"""One step of SGD on flat parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrun.strategies.client import LinearCorrection
from fedrun.strategies.local_training import LocalTraining


def sgd_step(
    weights: torch.Tensor,
    gradient: torch.Tensor,
    momentum: torch.Tensor | None,
    rate: float,
    local: LocalTraining,
    decay: torch.Tensor | None = None,
    frozen: torch.Tensor | None = None,
) -> None:
    """One step of SGD in place, on one client's parameters ``[T]`` or on a cohort's ``[C, T]``.

    The update rule is ``torch.optim.SGD``'s. ``gradient`` is used as scratch space; ``momentum`` (zeros at first, None
    where the momentum is 0) is updated. ``decay`` (``[1]`` or ``[C, 1]``) is a weight decay beside ``local``'s.
    ``frozen`` (bool, ``[T]`` or ``[C, T]``) are the parameters that do not move; their momentum becomes zero.
    """
    if frozen is not None:
        gradient.masked_fill_(frozen, 0.0)
    if local.max_gradient_norm is not None:
        norm = gradient.norm(dim=-1, keepdim=True)
        gradient.mul_((local.max_gradient_norm / (norm + 1e-6)).clamp_max_(1.0))
    if local.weight_decay:
        gradient.add_(weights, alpha=local.weight_decay)
    if decay is not None:
        gradient.addcmul_(weights, decay)
    if momentum is not None:
        momentum.mul_(local.momentum).add_(gradient)
        gradient = momentum
    if frozen is not None:
        gradient.masked_fill_(frozen, 0.0)  # what momentum and decay have added
    weights.add_(gradient, alpha=-rate)


def linear_update(
    linear_correction: LinearCorrection | None, local: LocalTraining, rate: float
) -> Callable[[torch.Tensor], object] | None:
    """What a step without clipping and momentum does to parameters beside following the loss's gradient.

    y ← (1 − η (strength + λ)) y − η shift, in place on ``[..., T]`` and in one pass; None: nothing.
    """
    if linear_correction is None:
        return (lambda weights: weights.mul_(1 - rate * local.weight_decay)) if local.weight_decay else None
    strength = linear_correction.strength
    if local.weight_decay:
        strength = (linear_correction.shift.new_zeros(1) if strength is None else strength) + local.weight_decay
    if strength is None:
        return lambda weights: weights.add_(linear_correction.shift, alpha=-rate)
    shift, kept = linear_correction.shift * -rate, 1 - rate * strength
    return lambda weights: torch.addcmul(shift, weights, kept, out=weights)


def repair(parameters: torch.Tensor) -> None:
    """Replace NaN, +∞ and −∞ by 1e-5, in place (TurboSVM-FL's guard)."""
    torch.nan_to_num_(parameters, nan=1e-5, posinf=1e-5, neginf=1e-5)
