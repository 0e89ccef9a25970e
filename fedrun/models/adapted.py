"""A network that was written for something else, adapted to a dataset: its head found, its normalisation replaced."""

from __future__ import annotations

import copy
from math import gcd
from typing import Literal

import torch

from fedrun.data.datasets.base import Spec
from fedrun.models.base import encoder_and_head
from fedrun.system.errors import InputError, one_line

GROUPS = 2

Norm = Literal["batch", "group"]
"""``batch``: the layers as they are. ``group``: each BatchNorm becomes GroupNorm."""


def adapted(network: torch.nn.Module, spec: Spec, model: str, head: str | None, norm: Norm) -> torch.nn.Sequential:
    """The network as an encoder and a head.

    Args:
        network: maps encoded samples ``[batch, *spec.input_shape]`` to logits ``[batch, spec.classes]``.
        spec: of the dataset.
        model: the option and its name, for messages.
        head: name of the linear layer that computes the logits; None: the last linear layer.
        norm: which normalisation layers it has.

    Raises:
        InputError: there is no such layer, it does not compute the logits, or the network rejects the samples.
    """
    if norm == "group":
        replace_batch_norm(network)
    linear = [name for name, module in network.named_modules() if type(module) is torch.nn.Linear and name]
    name = head or (linear[-1] if linear else "")
    if name not in linear:
        raise InputError(f"model.head={head or 'null'}: {model} has no such linear layer; allowed: {_listed(linear)}")
    _check_head(network, spec, model, name)
    layer = network.get_submodule(name)
    assert isinstance(layer, torch.nn.Linear)
    network.set_submodule(name, torch.nn.Identity())
    return encoder_and_head(network, layer)


def replace_batch_norm(network: torch.nn.Module) -> None:
    """Replace every 2-d BatchNorm by GroupNorm with two groups (one for an odd number of channels), in place.

    GroupNorm has no running statistics, which clients with different classes would disagree about (Hsieh et al., 2020).
    """
    layers = [(name, module) for name, module in network.named_modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for name, layer in layers:
        group_norm = torch.nn.GroupNorm(gcd(layer.num_features, GROUPS), layer.num_features, eps=layer.eps)
        network.set_submodule(name, group_norm)


def _check_head(network: torch.nn.Module, spec: Spec, model: str, name: str) -> None:
    """Reject a layer that does not compute the logits, and samples that the network cannot train on one by one."""
    trial = copy.deepcopy(network)
    seen: list[torch.Tensor] = []
    trial.get_submodule(name).register_forward_hook(lambda layer, inputs, outputs: seen.append(outputs))
    kind = torch.float32 if spec.vocabulary is None else torch.int64
    sample = torch.zeros(1, *spec.input_shape, dtype=kind)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = trial.train()(sample)
    except (RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
        shape = "x".join(map(str, spec.input_shape))
        raise InputError(
            f"{model}: rejects one sample of shape {shape} in training ({one_line(str(error), 200)})"
        ) from None
    if len(seen) != 1 or logits is not seen[0]:
        raise InputError(f"{model}: its outputs are not those of model.head={name}; name the layer that computes them")
    if logits.shape != (1, spec.classes):
        shape = "x".join(map(str, logits.shape[1:]))
        raise InputError(f"{model}: gives {shape} logits per sample; allowed: the dataset's {spec.classes} classes")


def _listed(names: list[str]) -> str:
    return ", ".join(names[-8:]) or "none, as it has no linear layer"
