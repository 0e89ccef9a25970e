"""LEAF's network for handwritten characters."""

from __future__ import annotations

from typing import ClassVar

from fedrun.config.config_class import config_class
from fedrun.models.mnist_cnn import MnistCNN


@config_class
class LeafFemnistCNN(MnistCNN):
    """McMahan et al.'s network with another hidden layer (LEAF; TurboSVM-FL).

    6 603 710 parameters with 2048 hidden units and 62 classes. TurboSVM-FL's table 4 has 4 to 1024 units, too.
    """

    name: ClassVar[str] = "leaf_femnist_cnn"
