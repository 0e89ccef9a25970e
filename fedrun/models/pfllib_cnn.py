"""PFLlib's small convolutional network."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_image
from fedrun.models.convolution import LEAST_SIDE_OF_LENET, lenet_encoder

EMBEDDING = 512


@config_class
class PfllibCNN(ModelConfig):
    """Two 5x5 convolutions (32, 64) without padding, each with 2x2 max-pooling, a hidden layer of 512, the head.

    582 026 parameters for 1x28x28 images with 10 classes, 924 708 for 3x32x32 with 100, 5 694 600 for 3x64x64 with 200.
    """

    def check(self, spec: Spec) -> None:
        require_image("pfllib_cnn", spec, LEAST_SIDE_OF_LENET)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        encoder = lenet_encoder(spec, (32, 64), (EMBEDDING,))
        return encoder_and_head(encoder, torch.nn.Linear(EMBEDDING, spec.classes))
