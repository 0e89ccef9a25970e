"""LEAF's network for faces."""

from __future__ import annotations

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_shape

CHANNELS = 32


@config_class
class LeafCelebaCNN(ModelConfig):
    """Four blocks of 3x3 convolution (32 channels), BatchNorm, 2x2 max-pooling and ReLU, then the head (TurboSVM-FL).

    30 498 parameters and 256 float buffers with 2 classes. LEAF's TensorFlow original rounds up when it pools (1152
    instead of 800 features at the head) and has no running statistics.
    """

    def check(self, spec: Spec) -> None:
        require_shape("leaf_celeba_cnn", spec, (3, 84, 84))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        blocks: list[torch.nn.Module] = []
        for channels in (3, CHANNELS, CHANNELS, CHANNELS):
            blocks += [
                torch.nn.Conv2d(channels, CHANNELS, kernel_size=3, padding=1),
                torch.nn.BatchNorm2d(CHANNELS),
                torch.nn.MaxPool2d(2),
                torch.nn.ReLU(),
            ]
        encoder = torch.nn.Sequential(*blocks, torch.nn.Flatten())
        # 84 -> 42 -> 21 -> 10 -> 5 pixels
        return encoder_and_head(encoder, torch.nn.Linear(CHANNELS * 5 * 5, spec.classes))
