"""McMahan et al.'s convolutional network for MNIST, which LEAF has for handwritten characters."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_shape
from fedrun.models.convolution import conv_pool_relu


@config_class
class MnistCNN(ModelConfig):
    """The "McMahan CNN": two 5x5 convolutions (32, 64 channels), one hidden layer, the head (McMahan et al., 2017).

    1 663 370 parameters with 512 hidden units and 10 classes, which fixes that the convolutions are padded.

    Attributes:
        embedding_dim: d, units of the hidden layer; 512 in the paper.
    """

    embedding_dim: Annotated[int, Ge(1)]

    name: ClassVar[str] = "mnist_cnn"

    def check(self, spec: Spec) -> None:
        require_shape(self.name, spec, (1, 28, 28))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        encoder = torch.nn.Sequential(
            *conv_pool_relu(1, 32, kernel=5, padding=2),
            *conv_pool_relu(32, 64, kernel=5, padding=2),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * 7 * 7, self.embedding_dim),
            torch.nn.ReLU(),
        )
        return encoder_and_head(encoder, torch.nn.Linear(self.embedding_dim, spec.classes))


@config_class
class LeafFemnistCNN(MnistCNN):
    """McMahan et al.'s network with another hidden layer (LEAF; TurboSVM-FL).

    6 603 710 parameters with 2048 hidden units and 62 classes. TurboSVM-FL's table 4 has 4 to 1024 units, too.
    """

    name: ClassVar[str] = "leaf_femnist_cnn"
