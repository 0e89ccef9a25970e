"""NIID-Bench's small convolutional network."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.config.identity import Neutral
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_image
from fedrun.models.convolution import LEAST_SIDE_OF_LENET, lenet_encoder

CHANNELS = (6, 16)
HIDDEN = (120, 84)


@config_class
class NiidSimpleCNN(ModelConfig):
    """LeNet-5 with ReLU and max-pooling: 5x5 convolutions (6, 16), hidden layers (120, 84), the head (NIID-Bench).

    With 10 classes 62 006 parameters for 3x32x32 images, 44 426 for 1x28x28.

    Attributes:
        encoders: number of such encoders, concatenated, below one head. 1 is NIID-Bench's network; 5 has the size of
            the concatenated model that FedConcat's table 9 gives to its baselines (309 990 parameters on CIFAR-10).
        projection: p, the outputs of MOON's projection head between encoder and head: d to d, ReLU, d to p; None: none.
    """

    encoders: Annotated[int, Ge(1)]
    projection: Annotated[Annotated[int, Ge(1)] | None, Neutral(None)]

    def check(self, spec: Spec) -> None:
        require_image("niid_simple_cnn", spec, LEAST_SIDE_OF_LENET)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        from fedrun.models.parallel_encoders import side_by_side

        encoder = side_by_side([lenet_encoder(spec, CHANNELS, HIDDEN) for _ in range(self.encoders)])
        width = self.encoders * HIDDEN[-1]
        if self.projection is None:
            return encoder_and_head(encoder, torch.nn.Linear(width, spec.classes))
        projection = (torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, self.projection))
        head = torch.nn.Linear(self.projection, spec.classes)
        return encoder_and_head(torch.nn.Sequential(encoder, *projection), head)
