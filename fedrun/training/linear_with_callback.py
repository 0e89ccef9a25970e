"""A linear layer whose weights are changed by a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable


class LinearWithCallback(torch.autograd.Function):
    """``[n, ..., in]`` to ``[n, ..., out]``. In the backward pass ``descend`` gets the inputs, the gradient at the
    outputs (one row per sample each) and whether the gradient at the inputs is needed; if so, it returns that gradient.
    """

    @staticmethod
    def forward(
        context: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        descend: Callable[[torch.Tensor, torch.Tensor, bool], torch.Tensor | None],
    ) -> torch.Tensor:
        context.save_for_backward(inputs)
        context.descend = descend
        return torch.nn.functional.linear(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context: Any, outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (inputs,) = context.saved_tensors
        needs_gradient, _, biased, _ = context.needs_input_grad
        rows = outputs.flatten(0, -2)
        gradient = context.descend(inputs.flatten(0, -2), rows, needs_gradient)
        return None if gradient is None else gradient.view_as(inputs), None, rows.sum(0) if biased else None, None
