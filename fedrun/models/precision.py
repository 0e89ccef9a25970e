"""In which numbers a network computes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]
"""float32; or bfloat16, 8 significant bits, where it pays: in convolutions and matrix products. The parameters that are
kept, what is added to them, and losses are float32 all the same.
"""


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A block in which networks compute forward in this precision; backward passes follow what was done forward.

    It must not outlast a change of the parameters: within the block each is rounded once.
    """
    if precision == "float32":
        return nullcontext()  # not a disabled autocast: entering that takes 0.03 of a small model's step
    return torch.autocast(device.type, torch.bfloat16)
