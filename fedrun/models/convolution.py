"""The building blocks of the papers' image networks.

The papers put ReLU before a pooling layer. Here it follows: outputs and gradients are the same bit for bit, because
ReLU is monotonic, and after the pooling it processes a quarter of the numbers.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from fedrun.data.datasets.base import Spec


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


def conv5_encoder(embedding_dim: int) -> torch.nn.Sequential:
    """For 1x28x28 images: two padded 5x5 convolutions (32, 64 channels), each with pooling, then one hidden layer.

    Gives embeddings ``[batch, embedding_dim]``.
    """
    return torch.nn.Sequential(
        *conv_pool_relu(1, 32, kernel=5, padding=2),
        *conv_pool_relu(32, 64, kernel=5, padding=2),
        torch.nn.Flatten(),
        torch.nn.Linear(64 * 7 * 7, embedding_dim),
        torch.nn.ReLU(),
    )


LEAST_SIDE_OF_LENET = 16
"""Pixels per side of the smallest image for which :func:`lenet_encoder` has outputs."""


def lenet_encoder(spec: Spec, channels: tuple[int, int], hidden: tuple[int, ...]) -> torch.nn.Sequential:
    """LeNet-5's plan: two 5x5 convolutions without padding, each with pooling, then hidden layers.

    Gives embeddings ``[batch, hidden[-1]]`` of images of any shape from 16x16 pixels.
    """
    channels_in, *sides = spec.input_shape
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
    layers = [
        *conv_pool_relu(channels_in, channels[0], kernel=5, padding=0),
        *conv_pool_relu(channels[0], channels[1], kernel=5, padding=0),
        torch.nn.Flatten(),
    ]
    for inputs, units in pairwise((channels[1] * height * width, *hidden)):
        layers += [torch.nn.Linear(inputs, units), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)
