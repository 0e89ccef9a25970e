"""A network that a user's function builds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch

from fedrun.config.config_class import PlainValue, config_class
from fedrun.config.identity import Neutral
from fedrun.data.datasets.base import Spec
from fedrun.models.adapted import AdaptedModel, Norm, replace_batch_norm
from fedrun.models.base import require_new
from fedrun.system.dotted_path import called, function_at
from fedrun.system.errors import InputError


@config_class
class CustomModel(AdaptedModel):
    """The network that ``target(spec)`` returns; it maps samples ``[batch, *spec.input_shape]`` to logits.

    A run is identified by the function's name, not by its code: rename it when you change it.

    Attributes:
        target: dotted path of a function from a :class:`fedrun.data.datasets.base.Spec` to a ``torch.nn.Module``.
        arguments: further arguments of the function, by name; None: none.
        norm: ``batch``: the network's own layers. ``group``: GroupNorm with two groups instead of each BatchNorm.
    """

    target: str
    arguments: Annotated[Mapping[str, PlainValue] | None, Neutral(None)]
    norm: Norm

    @property
    def key(self) -> str:
        return f"model=custom model.target={self.target}"

    def check(self, spec: Spec) -> None:
        function_at(self.target, "model.target", ["a Spec"], self.arguments or {})

    def build(self, spec: Spec) -> torch.nn.Sequential:
        network = called(self.target, "model.target", {"a Spec": spec}, self.arguments or {})
        if not isinstance(network, torch.nn.Module) or isinstance(network, torch.jit.ScriptModule):
            raise InputError(
                f"model.target={self.target}: returns a {type(network).__name__}; allowed: a torch.nn.Module that is "
                "not scripted"
            )
        require_new(network, f"model.target={self.target}")
        if self.norm == "group":
            replace_batch_norm(network)
        return self.adapt(network, spec)
