"""The number format of a network's computations."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]
"""float32; or bfloat16 (8 significant bits) in convolutions and matrix products. Stored parameters, their updates and
losses are float32 in both cases.
"""


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A block in which forward passes use this precision; each backward pass uses that of its forward pass.

    It must end before the parameters change, because each is rounded once within the block.
    """
    if precision == "float32":
        return nullcontext()  # not a disabled autocast: entering that takes 0.03 of a small model's step
    return torch.autocast(device.type, torch.bfloat16)
