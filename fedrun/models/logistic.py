"""Multinomial logistic regression."""

from __future__ import annotations

import math

import torch

from fedrun.config.config_class import config_class
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head, require_numbers


@config_class
class Logistic(ModelConfig):
    """One linear layer with bias on the flattened sample: a convex problem.

    Attributes:
        zero_init: start from zero weights and biases, as FedDC's synthetic runs do; otherwise from PyTorch's default.
    """

    zero_init: bool

    def check(self, spec: Spec) -> None:
        require_numbers("logistic", spec)

    def build(self, spec: Spec) -> torch.nn.Sequential:
        head = torch.nn.Linear(math.prod(spec.input_shape), spec.classes)
        if self.zero_init:
            torch.nn.init.zeros_(head.weight)
            torch.nn.init.zeros_(head.bias)
        return encoder_and_head(torch.nn.Flatten(), head)
