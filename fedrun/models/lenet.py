"""Convolutional networks by LeNet-5's plan: those of FedDyn and FedDC, PFLlib and NIID-Bench."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_image
from fedrun.models.convolution import conv_pool_relu


class LeNet(ModelConfig):
    """Two 5x5 convolutions without padding, each with 2x2 max-pooling, hidden layers, the head.

    Attributes:
        name: name of the option.
        channels: channels of the two convolutions.
        hidden: units of the hidden layers.
    """

    name: ClassVar[str]
    channels: ClassVar[tuple[int, int]]
    hidden: ClassVar[tuple[int, ...]]

    def check(self, spec: Spec) -> None:
        require_image(self.name, spec, 16)  # smaller images leave nothing after the second pooling

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return encoder_and_head(self.encoder(spec), torch.nn.Linear(self.hidden[-1], spec.classes))

    def encoder(self, spec: Spec) -> torch.nn.Sequential:
        """A new encoder, to embeddings ``[batch, hidden[-1]]``."""
        channels_in, *sides = spec.input_shape
        first, second = self.channels
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        layers = [
            *conv_pool_relu(channels_in, first, kernel=5, padding=0),
            *conv_pool_relu(first, second, kernel=5, padding=0),
            torch.nn.Flatten(),
        ]
        for inputs, units in pairwise((second * height * width, *self.hidden)):
            layers += [torch.nn.Linear(inputs, units), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers)


@config_class
class FeddcCifarCNN(LeNet):
    """5x5 convolutions (64, 64), hidden layers (384, 192), the head (FedDyn, FedDC; FedUmf's appendix).

    For 3x32x32 images 797 962 parameters with 10 classes, 815 332 with 100.
    """

    name: ClassVar[str] = "feddc_cifar_cnn"
    channels: ClassVar[tuple[int, int]] = (64, 64)
    hidden: ClassVar[tuple[int, ...]] = (384, 192)


@config_class
class PfllibCNN(LeNet):
    """5x5 convolutions (32, 64), a hidden layer of 512, the head (PFLlib).

    582 026 parameters for 1x28x28 images with 10 classes, 924 708 for 3x32x32 with 100, 5 694 600 for 3x64x64 with 200.
    """

    name: ClassVar[str] = "pfllib_cnn"
    channels: ClassVar[tuple[int, int]] = (32, 64)
    hidden: ClassVar[tuple[int, ...]] = (512,)


@config_class
class NiidSimpleCNN(LeNet):
    """LeNet-5 with ReLU and max-pooling: 5x5 convolutions (6, 16), hidden layers (120, 84), the head (NIID-Bench).

    With 10 classes 62 006 parameters for 3x32x32 images, 44 426 for 1x28x28.

    Attributes:
        encoders: number of such encoders, concatenated, below one head. 1 is NIID-Bench's network; 5 has the size of
            the concatenated model that FedConcat's table 9 gives to its baselines (309 990 parameters on CIFAR-10).
        projection: p, the outputs of MOON's projection head between encoder and head: d to d, ReLU, d to p; None: none.
    """

    name: ClassVar[str] = "niid_simple_cnn"
    channels: ClassVar[tuple[int, int]] = (6, 16)
    hidden: ClassVar[tuple[int, ...]] = (120, 84)

    encoders: Annotated[int, Ge(1)]
    projection: Annotated[Annotated[int, Ge(1)] | None, Neutral(None)]

    def build(self, spec: Spec) -> torch.nn.Sequential:
        from fedrun.models.parallel_encoders import ParallelEncoders

        encoders = [self.encoder(spec) for _ in range(self.encoders)]
        encoder = encoders[0] if len(encoders) == 1 else ParallelEncoders(encoders)
        width = self.encoders * self.hidden[-1]
        if self.projection is None:
            return encoder_and_head(encoder, torch.nn.Linear(width, spec.classes))
        projection = (torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, self.projection))
        head = torch.nn.Linear(self.projection, spec.classes)
        return encoder_and_head(torch.nn.Sequential(encoder, *projection), head)
