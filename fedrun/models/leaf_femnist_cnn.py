"""LEAF's network for handwritten characters."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_shape
from fedrun.models.convolution import conv5_encoder


@config_class
class LeafFemnistCNN(ModelConfig):
    """Two 5x5 convolutions (32, 64 channels), one hidden layer, the head (LEAF; TurboSVM-FL).

    6 603 710 parameters with 2048 hidden units and 62 classes.

    Attributes:
        embedding_dim: d, units of the hidden layer; 2048 in LEAF, also 4 to 1024 in TurboSVM-FL's table 4.
    """

    embedding_dim: Annotated[int, Ge(1)]

    def check(self, spec: Spec) -> None:
        require_shape("leaf_femnist_cnn", spec, (1, 28, 28))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return encoder_and_head(conv5_encoder(self.embedding_dim), torch.nn.Linear(self.embedding_dim, spec.classes))
