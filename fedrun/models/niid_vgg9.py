"""NIID-Bench's VGG-9."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_image
from fedrun.models.convolution import conv_pool_relu, conv_relu

EMBEDDING = 512


@config_class
class NiidVGG9(ModelConfig):
    """Six 3x3 convolutions (32, 64, 128, 128, 256, 256), two hidden layers of 512 units, the head (NIID-Bench).

    Pooling follows every second convolution; dropout is 0.05 of whole channels after the second pooling and 0.1 before
    the first and after the last hidden layer. 3 491 530 parameters for 3x32x32 images with 10 classes.
    """

    def check(self, spec: Spec) -> None:
        require_image("niid_vgg9", spec, least_side=8)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        channels, height, width = spec.input_shape
        encoder = torch.nn.Sequential(
            *conv_relu(channels, 32, kernel=3, padding=1),
            *conv_pool_relu(32, 64, kernel=3, padding=1),
            *conv_relu(64, 128, kernel=3, padding=1),
            *conv_pool_relu(128, 128, kernel=3, padding=1),
            torch.nn.Dropout2d(0.05),
            *conv_relu(128, 256, kernel=3, padding=1),
            *conv_pool_relu(256, 256, kernel=3, padding=1),
            torch.nn.Flatten(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(256 * (height // 8) * (width // 8), EMBEDDING),
            torch.nn.ReLU(),
            torch.nn.Linear(EMBEDDING, EMBEDDING),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.1),
        )
        return encoder_and_head(encoder, torch.nn.Linear(EMBEDDING, spec.classes))
