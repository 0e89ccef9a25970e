"""Fixed models that are evaluated during the training of another model."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch

from fedrun.models.flat_network import FlatNetwork


class FrozenEncoders:
    """Fixed models: they are evaluated without gradient and never change.

    Args:
        network: the network whose encoder it is.
        models: ``[P]`` each, by name.
    """

    def __init__(self, network: FlatNetwork, models: Mapping[str, torch.Tensor]) -> None:
        module = network.network
        # what is replaced or fixed, and results that layers have kept: tensors with a gradient's graph cannot be copied
        kept = (value for layer in module.modules() for value in vars(layer).values())
        tensors = (*module.parameters(), *module.buffers(), *kept)
        shared = {id(tensor): tensor for tensor in tensors if isinstance(tensor, torch.Tensor)}
        self._encoder, self._head = (copy.deepcopy(module.get_submodule(name), shared) for name in ("encoder", "head"))
        for layer in self._encoder.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.track_running_stats = False  # training mode would change them
        views = {name: network.layout.views(model) for name, model in models.items()}
        self._tensors = {name: _of_part(each, "encoder.") for name, each in views.items()}
        self._heads = {name: _of_part(each, "head.") for name, each in views.items()}

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

    def outputs(self, inputs: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """The embeddings ``[B, d]`` and the logits ``[B, classes]`` of a batch under each model, in evaluation mode."""
        with torch.no_grad():
            return {
                name: (embeddings, torch.func.functional_call(self._head, self._heads[name], (embeddings,)))
                for name, embeddings in self(inputs).items()
            }


def _of_part(views: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): view for key, view in views.items() if key.startswith(prefix)}
