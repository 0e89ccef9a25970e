"""MaxFL's multi-layer perceptrons."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, require_shape
from fedrun.models.mlp import perceptron

Width = Annotated[int, Ge(1)]


@config_class
class MaxflMLP(ModelConfig):
    """Two hidden layers with ReLU, dropout after the first, the head, for Fashion-MNIST and EMNIST (Cho et al., 2022).

    784-64-30-10 has 52 500 parameters, with 62 classes 54 112. The paper gives the place of the dropout but not the
    widths; these are in the first author's code for an earlier paper (Power-of-Choice, arXiv 2010.01243), where the
    dropout follows the second hidden layer.

    Attributes:
        hidden: units of the two hidden layers.
        dropout: probability in [0, 1) with which a unit of the first hidden layer is dropped in training.
    """

    hidden: tuple[Width, Width]
    dropout: Annotated[float, Ge(0), Lt(1)]

    def check(self, spec: Spec) -> None:
        require_shape("maxfl_mlp", spec, (1, 28, 28))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, dropout=(self.dropout, 0.0))


@config_class
class MaxflSent140MLP(ModelConfig):
    """Three hidden layers with ReLU over a tweet's mean word vector (Cho et al., 2022).

    200-128-86-30-2 has 39 494 parameters; the widths are recovered as for :class:`MaxflMLP`.

    Attributes:
        hidden: units of the three hidden layers.
    """

    hidden: tuple[Width, Width, Width]

    def check(self, spec: Spec) -> None:
        require_shape("maxfl_sent140_mlp", spec, (200,))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, dropout=(0.0, 0.0, 0.0))
