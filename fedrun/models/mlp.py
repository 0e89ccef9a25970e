"""A multi-layer perceptron over any numbers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

import torch
from annotated_types import Ge, Lt

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_numbers


@config_class
class MLP(ModelConfig):
    """Flatten, then hidden layers with ReLU and optional dropout, then the head.

    Attributes:
        hidden: units of each hidden layer, from input to head; an empty list gives logistic regression.
        dropout: probability in [0, 1) with which a hidden unit is dropped in training, after each ReLU; 0 for none.
    """

    hidden: tuple[Annotated[int, Ge(1)], ...]
    dropout: Annotated[float, Ge(0), Lt(1)]

    def check(self, spec: Spec) -> None:
        require_numbers("mlp", spec)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        return perceptron(spec, self.hidden, (self.dropout,) * len(self.hidden))


def perceptron(spec: Spec, hidden: tuple[int, ...], dropout: tuple[float, ...]) -> torch.nn.Sequential:
    """Fully connected layers with ReLU for samples of any shape, and the head.

    Args:
        spec: the samples.
        hidden: units of each hidden layer.
        dropout: for each hidden layer, the probability of dropping a unit after its ReLU; 0: no such layer.
    """
    widths = (math.prod(spec.input_shape), *hidden)
    encoder: list[torch.nn.Module] = [torch.nn.Flatten()]
    for (width_in, width_out), probability in zip(pairwise(widths), dropout, strict=True):
        encoder += [torch.nn.Linear(width_in, width_out), torch.nn.ReLU()]
        if probability > 0:
            encoder.append(torch.nn.Dropout(probability))
    return encoder_and_head(torch.nn.Sequential(*encoder), torch.nn.Linear(widths[-1], spec.classes))
