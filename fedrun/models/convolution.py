"""The building blocks of the papers' image networks.

The papers put ReLU before a pooling layer. Here it follows: outputs and gradients are the same bit for bit, because
ReLU is monotonic, and after the pooling it processes a quarter of the numbers.
"""

from __future__ import annotations

import torch


def conv_relu(channels_in: int, channels_out: int, kernel: int, padding: int) -> list[torch.nn.Module]:
    """A convolution and ReLU."""
    return [torch.nn.Conv2d(channels_in, channels_out, kernel, padding=padding), torch.nn.ReLU()]


def conv_pool_relu(channels_in: int, channels_out: int, kernel: int, padding: int) -> list[torch.nn.Module]:
    """A convolution, 2x2 max-pooling that halves height and width (rounded down), ReLU."""
    return [
        torch.nn.Conv2d(channels_in, channels_out, kernel, padding=padding),
        torch.nn.MaxPool2d(2),
        torch.nn.ReLU(),
    ]
