"""McMahan et al.'s multi-layer perceptron for MNIST."""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Ge
from pydantic.dataclasses import dataclass

from fedrun.datasets.base import Spec
from fedrun.models.base import ModelRecipe, require_shape
from fedrun.models.mlp import perceptron
from fedrun.recipe import STRICT

Width = Annotated[int, Ge(1)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Mnist2NN(ModelRecipe):
    """The "2NN": 784-200-200-10 with ReLU (McMahan et al., 2017). 199 210 parameters with the paper's widths.

    Attributes:
        hidden: units of the two hidden layers; [200, 200] in the paper.
    """

    hidden: tuple[Width, Width]

    def check(self, spec: Spec) -> None:
        require_shape("mnist_2nn", spec, (1, 28, 28))

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, dropout=0.0)
