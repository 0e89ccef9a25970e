"""Encoders of fixed models."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from fedrun.models.flat_network import FlatNetwork


class FrozenEncoders:
    """The encoders of fixed models: they embed without gradient, and nothing changes them.

    Args:
        network: whose encoder it is.
        models: ``[P]`` each, by name.
    """

    def __init__(self, network: FlatNetwork, models: Mapping[str, torch.Tensor]) -> None:
        self._encoder = copy.deepcopy(network.network.get_submodule("encoder"))
        for module in self._encoder.modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                module.track_running_stats = False  # in training mode it would move them
        prefix = "encoder."
        self._tensors = {
            name: {key.removeprefix(prefix): view for key, view in views.items() if key.startswith(prefix)}
            for name, views in ((name, network.layout.views(model)) for name, model in models.items())
        }

    def __call__(self, inputs: torch.Tensor, training: bool = False) -> dict[str, torch.Tensor]:
        """The embeddings ``[B, d]`` of a batch under each model.

        Args:
            inputs: encoded, ``[B, ...]``.
            training: use the batch's statistics in BatchNorm, instead of the running ones, and drop units in dropout.
        """
        self._encoder.train(training)
        with torch.no_grad():
            return {
                name: torch.func.functional_call(self._encoder, tensors, (inputs,))
                for name, tensors in self._tensors.items()
            }
