"""Constants on a device."""

from __future__ import annotations

from functools import cache

import torch


@cache
def constants(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """These numbers ``[n]`` on a device; callers do not change the tensor.

    It is copied to the device once. A copy in each step would wait for the steps before it. It is never released:
    recorded steps read it where it is.
    """
    with torch.inference_mode(False):  # the tensor is used in training, too
        return torch.tensor(values, dtype=dtype, device=device)
