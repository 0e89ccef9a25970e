"""One step of the local optimizer on flat parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedrun.strategies.client import LinearCorrection
from fedrun.strategies.local_training import LocalTraining


def fresh_state(weights: torch.Tensor, local: LocalTraining) -> torch.Tensor | None:
    """The optimizer's state before the first step on parameters ``[..., T]``: zeros ``[..., S]``; None: no state.

    S is :meth:`LocalTraining.optimizer_state`.
    """
    length = local.optimizer_state(weights.shape[-1])
    return weights.new_zeros(*weights.shape[:-1], length) if length else None


def optimizer_step(
    weights: torch.Tensor,
    gradient: torch.Tensor,
    state: torch.Tensor | None,
    rate: float,
    local: LocalTraining,
    correction: LinearCorrection | None = None,
    frozen: torch.Tensor | None = None,
) -> None:
    """One step in place, on one client's parameters ``[T]`` or on a cohort's ``[C, T]``.

    The update rules are those of ``torch.optim``. ``gradient`` is overwritten; ``state`` (of :func:`fresh_state` at
    first) is updated. ``correction`` is the client strategy's. Its part that decays acts like weight decay besides
    ``local``'s; it belongs to the objective, so it is part of the gradient with every optimizer. ``frozen`` (bool,
    ``[T]`` or ``[C, T]``) are the parameters that do not move. Their moments become zero; Adam's number of steps
    becomes zero if no moving parameter has moments.
    """
    if correction is not None:
        correction.add_to(gradient, weights)
    if frozen is not None:
        gradient.masked_fill_(frozen, 0.0)
    if local.max_gradient_norm is not None:
        norm = gradient.norm(dim=-1, keepdim=True)
        gradient.mul_((local.max_gradient_norm / (norm + 1e-6)).clamp_max_(1.0))
    decoupled = local.optimizer == "adamw"
    if local.weight_decay and not decoupled:
        gradient.add_(weights, alpha=local.weight_decay)
    if correction is not None and correction.decays and correction.strength is not None:
        gradient.add_(weights * correction.strength)  # not fused, as in LinearCorrection.add_to
    if frozen is not None:
        gradient.masked_fill_(frozen, 0.0)  # again, as the decay has changed it
        if state is not None:
            for moment in torch.split(state, weights.shape[-1], -1)[:2]:
                moment.masked_fill_(frozen, 0.0)
            if local.adaptive:  # the count restarts at 0 if no moving parameter has a moment
                state[..., -1:] *= state[..., : weights.shape[-1]].any(-1, keepdim=True)
    if not local.adaptive:
        weights.add_(_sgd_direction(gradient, state, local), alpha=-rate)
        return
    assert state is not None
    if decoupled and local.weight_decay:
        # y ← (1 − η λ) y
        kept = 1 - rate * local.weight_decay
        weights.mul_(kept if frozen is None else torch.where(frozen, 1.0, kept))
    _adam_step(weights, gradient, state, rate, local)


def _sgd_direction(gradient: torch.Tensor, momentum: torch.Tensor | None, local: LocalTraining) -> torch.Tensor:
    """SGD's direction, ``[..., T]``: the gradient, the new momentum, or with Nesterov a sum of both."""
    if momentum is None:
        return gradient
    # v ← μ v + g
    momentum.mul_(local.momentum).add_(gradient)
    # Nesterov: g + μ v
    return gradient.add_(momentum, alpha=local.momentum) if local.optimizer == "nesterov" else momentum


def _adam_step(
    weights: torch.Tensor, gradient: torch.Tensor, state: torch.Tensor, rate: float, local: LocalTraining
) -> None:
    """Adam's step by torch's fused kernel, which reads memory once.

    The state ``[..., 2 T + 1]`` is both moments and the number of steps made so far.
    """
    from torch.optim.adam import adam

    trainable = weights.shape[-1]
    rows = [tensor.view(-1, tensor.shape[-1]).unbind() for tensor in (weights, gradient)]
    remembered = state.view(-1, state.shape[-1]).unbind()
    adam(
        list(rows[0]),
        list(rows[1]),
        [row[:trainable] for row in remembered],
        [row[trainable:-1] for row in remembered],
        [],
        [row[-1] for row in remembered],
        fused=True,
        amsgrad=False,
        beta1=local.beta1,
        beta2=local.beta2,
        lr=rate,
        weight_decay=0.0,
        eps=local.eps,
        maximize=False,
    )


def linear_update(
    linear_correction: LinearCorrection | None, local: LocalTraining, rate: float
) -> Callable[[torch.Tensor], object] | None:
    """The part of a step without clipping and momentum that does not depend on the loss's gradient.

    y ← (1 − η (strength + λ)) y − η shift, in place on ``[..., T]`` and in one pass; None: no such part.
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
