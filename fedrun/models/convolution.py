"""What LEAF's and McMahan's image networks are built of."""

from __future__ import annotations

import torch


def conv5_block(channels_in: int, channels_out: int) -> list[torch.nn.Module]:
    """5x5 convolution that keeps height and width, 2x2 max-pooling that halves them, ReLU.

    The papers put ReLU before the pooling. Outputs and gradients are the same bit for bit, because ReLU is monotonic;
    after the pooling it has a quarter of the numbers to go through.
    """
    return [
        torch.nn.Conv2d(channels_in, channels_out, kernel_size=5, padding=2),
        torch.nn.MaxPool2d(2),
        torch.nn.ReLU(),
    ]


def conv5_encoder(embedding_dim: int) -> torch.nn.Sequential:
    """Two of these blocks (32, 64 channels) for 1x28x28 images, then one hidden layer: embeddings ``[batch, d]``."""
    return torch.nn.Sequential(
        *conv5_block(1, 32),
        *conv5_block(32, 64),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 7 * 7, embedding_dim),
        torch.nn.ReLU(),
    )
