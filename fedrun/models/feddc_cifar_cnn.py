"""FedDC's convolutional network for CIFAR."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_image
from fedrun.models.convolution import LEAST_SIDE_OF_LENET, lenet_encoder

CHANNELS = (64, 64)
HIDDEN = (384, 192)


@config_class
class FeddcCifarCNN(ModelConfig):
    """5x5 convolutions (64, 64), hidden layers (384, 192), the head (FedDyn, FedDC; FedUmf's appendix).

    For 3x32x32 images 797 962 parameters with 10 classes, 815 332 with 100.
    """

    def check(self, spec: Spec) -> None:
        require_image("feddc_cifar_cnn", spec, LEAST_SIDE_OF_LENET)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return encoder_and_head(lenet_encoder(spec, CHANNELS, HIDDEN), torch.nn.Linear(HIDDEN[-1], spec.classes))
