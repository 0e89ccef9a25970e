"""What a model is: an encoder followed by a head, the linear layer that computes the logits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict

import torch

from fedrun.datasets.base import Spec
from fedrun.errors import InputError


class ModelRecipe(ABC):
    """A model option of the configuration."""

    @abstractmethod
    def check(self, spec: Spec) -> None:
        """Refuse a dataset whose samples do not fit the model.

        Raises:
            InputError: naming the model's input and the dataset's.
        """

    @abstractmethod
    def build(self, spec: Spec) -> torch.nn.Sequential:
        """The network, freshly initialised from torch's global generator.

        Returns:
            A ``Sequential`` of two children, as made by :func:`encoder_and_head`. It maps encoded samples
            ``[batch, *spec.input_shape]`` to logits ``[batch, spec.classes]``.
        """


def encoder_and_head(encoder: torch.nn.Module, head: torch.nn.Linear) -> torch.nn.Sequential:
    """A network of two named children: ``encoder`` (samples to embeddings ``[batch, d]``) and ``head`` (logits)."""
    return torch.nn.Sequential(OrderedDict(encoder=encoder, head=head))


def require_shape(model: str, spec: Spec, *allowed: tuple[int, ...]) -> None:
    """Refuse a dataset whose samples are not numbers of one of the allowed shapes.

    Raises:
        InputError: one line with the model's and the dataset's shapes.
    """
    if spec.vocabulary is None and spec.input_shape in allowed:
        return
    wanted = " or ".join("x".join(map(str, shape)) for shape in allowed)
    found = "x".join(map(str, spec.input_shape)) + (" symbols" if spec.vocabulary is not None else "")
    raise InputError(f"model={model} reads inputs of shape {wanted}, but the dataset's samples are {found}")
