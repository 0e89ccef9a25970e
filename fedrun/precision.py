"""In which numbers a network computes."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["float32", "bfloat16"]
"""float32; or bfloat16, 8 significant bits, where it pays: in convolutions and matrix products. The parameters that are
kept, what is added to them, and losses are float32 all the same.
"""


def computing(precision: Precision, device: torch.device) -> torch.autocast:
    """A block in which networks compute forward in this precision; backward passes follow what was done forward.

    It must not outlast a change of the parameters: within the block each is rounded once.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
