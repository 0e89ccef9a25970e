"""The multi-layer perceptrons of McMahan et al. and of FedDC for MNIST and similar data."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, require_shape
from fedrun.models.mlp import perceptron

Width = Annotated[int, Ge(1)]


@config_class
class Mnist2NN(ModelConfig):
    """The "2NN": 784-200-200-10 with ReLU (McMahan et al., 2017). 199 210 parameters with the paper's widths.

    Attributes:
        hidden: units of the two hidden layers; [200, 200] in the paper.
    """

    hidden: tuple[Width, Width]

    name: ClassVar[str] = "mnist_2nn"

    def check(self, spec: Spec) -> None:
        require_shape(self.name, spec, (1, 28, 28))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, dropout=(0.0, 0.0))


@config_class
class FeddcEmnistFCN(Mnist2NN):
    """The perceptron with the widths of FedDC's code for EMNIST letters: 784-100-100-10, 89 610 parameters.

    For MNIST that code has McMahan et al.'s widths. (The text of FedUmf's appendix exchanges the two.)
    """

    name: ClassVar[str] = "feddc_emnist_fcn"
