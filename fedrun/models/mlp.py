"""Multi-layer perceptrons: over any numbers, and those of McMahan et al., FedDC and MaxFL."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_numbers, require_shape

Width = Annotated[int, Ge(1)]
"""Units of a layer."""


def perceptron(spec: Spec, hidden: tuple[int, ...], dropout: tuple[float, ...]) -> torch.nn.Sequential:
    """Fully connected layers with ReLU for samples of any shape, and the head.

    Args:
        spec: the samples.
        hidden: units of each hidden layer.
        dropout: for each hidden layer: the probability of dropping a unit after its ReLU; 0: no such layer.
    """
    widths = (math.prod(spec.input_shape), *hidden)
    encoder: list[torch.nn.Module] = [torch.nn.Flatten()]
    for (width_in, width_out), probability in zip(pairwise(widths), dropout, strict=True):
        encoder += [torch.nn.Linear(width_in, width_out), torch.nn.ReLU()]
        if probability > 0:
            encoder.append(torch.nn.Dropout(probability))
    return encoder_and_head(torch.nn.Sequential(*encoder), torch.nn.Linear(widths[-1], spec.classes))


@config_class
class MLP(ModelConfig):
    """Flatten, then hidden layers with ReLU and optional dropout, then the head.

    Attributes:
        hidden: units of each hidden layer, from input to head; an empty list gives logistic regression.
        dropout: probability in [0, 1) with which a hidden unit is dropped in training, after each ReLU; 0 for none.
    """

    hidden: tuple[Width, ...]
    dropout: Annotated[float, Ge(0), Lt(1)]

    def check(self, spec: Spec) -> None:
        require_numbers("mlp", spec)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, (self.dropout,) * len(self.hidden))


class PapersPerceptron(ModelConfig):
    """A perceptron for samples of one shape, without dropout.

    Attributes:
        name: name of the option.
        shape: shape of a sample.
        hidden: units of the hidden layers, a key of each option.
    """

    name: ClassVar[str]
    shape: ClassVar[tuple[int, ...]] = (1, 28, 28)
    hidden: tuple[int, ...]

    def check(self, spec: Spec) -> None:
        require_shape(self.name, spec, self.shape)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, (0.0,) * len(self.hidden))


@config_class
class Mnist2NN(PapersPerceptron):
    """The "2NN": 784-200-200-10 with ReLU (McMahan et al., 2017). 199 210 parameters with the paper's widths.

    Attributes:
        hidden: units of the two hidden layers; [200, 200] in the paper.
    """

    name: ClassVar[str] = "mnist_2nn"

    hidden: tuple[Width, Width]


@config_class
class FeddcEmnistFCN(Mnist2NN):
    """The perceptron with the widths of FedDC's code for EMNIST letters: 784-100-100-10, 89 610 parameters.

    For MNIST that code has McMahan et al.'s widths. (The text of FedUmf's appendix exchanges the two.)
    """

    name: ClassVar[str] = "feddc_emnist_fcn"


@config_class
class MaxflMLP(PapersPerceptron):
    """Two hidden layers with ReLU, dropout after the first, the head, for Fashion-MNIST and EMNIST (Cho et al., 2022).

    784-64-30-10 has 52 500 parameters, with 62 classes 54 112. The paper gives the place of the dropout but not the
    widths; these are in the first author's code for an earlier paper (Power-of-Choice, arXiv 2010.01243), where the
    dropout follows the second hidden layer.

    Attributes:
        hidden: units of the two hidden layers.
        dropout: probability in [0, 1) with which a unit of the first hidden layer is dropped in training.
    """

    name: ClassVar[str] = "maxfl_mlp"

    hidden: tuple[Width, Width]
    dropout: Annotated[float, Ge(0), Lt(1)]

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, (self.dropout, 0.0))


@config_class
class MaxflSent140MLP(PapersPerceptron):
    """Three hidden layers with ReLU over a tweet's mean word vector (Cho et al., 2022).

    200-128-86-30-2 has 39 494 parameters; the widths are recovered as for :class:`MaxflMLP`.

    Attributes:
        hidden: units of the three hidden layers.
    """

    name: ClassVar[str] = "maxfl_sent140_mlp"
    shape: ClassVar[tuple[int, ...]] = (200,)

    hidden: tuple[Width, Width, Width]
