"""McMahan et al.'s convolutional network for MNIST."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_shape
from fedrun.models.convolution import conv5_encoder


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
        return encoder_and_head(conv5_encoder(self.embedding_dim), torch.nn.Linear(self.embedding_dim, spec.classes))
