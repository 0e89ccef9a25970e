"""The base of models: an encoder followed by a head, the linear layer that computes the logits, if there is one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import ClassVar

import torch

from fedrun.config.option_name import chosen
from fedrun.data.datasets.base import Spec
from fedrun.system.errors import InputError

RETURNED = "returned_by_a_model"
"""The attribute of parameters by which :func:`new_network` recognises them."""


class ModelConfig(ABC):
    """A model option of the configuration.

    Attributes:
        reads_any_length: whether the network reads texts shorter than the dataset's. Batches of padded texts are then
            cut to their longest text.
    """

    reads_any_length: ClassVar[bool] = False

    @abstractmethod
    def check(self, spec: Spec) -> None:
        """Reject a dataset whose samples do not fit the model.

        Raises:
            InputError: naming the model's input and the dataset's.
        """

    @abstractmethod
    def build(self, spec: Spec) -> torch.nn.Sequential:
        """A new network, initialised from torch's global generator.

        Returns:
            A ``Sequential`` of two children, as made by :func:`encoder_and_head`. It maps encoded samples
            ``[batch, *spec.input_shape]`` to outputs ``[batch, *spec.output_shape]``: of a classification the logits
            ``[batch, spec.classes]``.
        """


def new_network(model: ModelConfig, spec: Spec) -> torch.nn.Sequential:
    """The network that a model builds.

    Raises:
        InputError: a user's model returns something else, or weights that it has returned before.
    """
    network, key = model.build(spec), chosen("model", model)
    if not isinstance(network, torch.nn.Module):
        raise InputError(f"{key}: builds a {type(network).__name__}; allowed: a Sequential of encoder and head")
    require_new(network, key)
    for parameter in network.parameters():
        setattr(parameter, RETURNED, True)
    return network


def require_new(network: torch.nn.Module, key: str) -> None:
    """Reject a network with trained weights of an earlier one. A run trains its networks in place, so that two networks
    of a cache would be the same, and the initial model the one trained last.

    Args:
        network: what a user's model has returned.
        key: the model as the command line chooses it.

    Raises:
        InputError: naming the first of the weights.
    """
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and hasattr(parameter, RETURNED):
            raise InputError(
                f"{key}: returns the weights {name} of an earlier call, as from a cache; allowed: new weights each time"
            )


def encoder_and_head(encoder: torch.nn.Module, head: torch.nn.Linear | torch.nn.Identity) -> torch.nn.Sequential:
    """A network of two named children: ``encoder`` (samples to embeddings ``[batch, d]``) and ``head`` (logits).

    In a network without a head, the encoder computes the outputs and the head is an identity.
    """
    return torch.nn.Sequential(OrderedDict(encoder=encoder, head=head))


def require_shape(model: str, spec: Spec, *allowed: tuple[int, ...]) -> None:
    """Reject a dataset whose samples are not numbers of one of the allowed shapes.

    Raises:
        InputError: one line with the model's and the dataset's shapes.
    """
    if spec.vocabulary is None and spec.input_shape in allowed:
        return
    wanted = " or ".join("x".join(map(str, shape)) for shape in allowed)
    raise InputError(f"model={model} reads inputs of shape {wanted}, but the dataset's samples are {_found(spec)}")


def require_image(model: str, spec: Spec, least_side: int) -> None:
    """Reject a dataset whose samples are not images ``[channels, height, width]``, or are too small for the model's
    pooling layers and strides.

    Raises:
        InputError: one line with the model's least size and the dataset's shape.
    """
    if spec.vocabulary is None and len(spec.input_shape) == 3 and min(spec.input_shape[1:]) >= least_side:
        return
    raise InputError(
        f"model={model} reads images of at least {least_side}x{least_side} pixels, channels first, but the dataset's "
        f"samples are {_found(spec)}"
    )


def require_numbers(model: str, spec: Spec) -> None:
    """Reject a dataset of texts: a symbol's number is a name, not a quantity.

    Raises:
        InputError: one line with the model's and the dataset's inputs.
    """
    if spec.vocabulary is not None:
        raise InputError(f"model={model} reads numbers of any shape, but the dataset's samples are {_found(spec)}")


def require_text(model: str, spec: Spec) -> None:
    """Reject a dataset whose samples are not texts.

    Raises:
        InputError: one line with the model's and the dataset's inputs.
    """
    if spec.vocabulary is None or len(spec.input_shape) != 1:
        raise InputError(f"model={model} reads texts of symbols, but the dataset's samples are {_found(spec)}")


def _found(spec: Spec) -> str:
    return "x".join(map(str, spec.input_shape)) + (" symbols" if spec.vocabulary is not None else "")
