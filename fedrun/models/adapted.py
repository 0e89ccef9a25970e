"""An existing network adapted to a dataset: its head split off, its normalisation replaced, parts of it frozen,
low-rank adapters inserted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import gcd
from typing import Annotated, Literal

import torch

from fedrun.config.config_class import NameOrNumber, config_class
from fedrun.config.identity import Neutral
from fedrun.data.datasets.base import Spec
from fedrun.models.base import ModelConfig, encoder_and_head
from fedrun.models.lora import LoRA
from fedrun.models.resnet import GROUPS
from fedrun.models.trial import check_network, random_samples
from fedrun.system.errors import InputError

Norm = Literal["batch", "group"]
"""``batch``: the layers stay as they are. ``group``: each BatchNorm becomes GroupNorm."""


@config_class
class AdaptedModel(ModelConfig):
    """Adapts an existing network. All names are those of the network itself.

    Attributes:
        head: the linear layer that computes the outputs; None: the last linear layer, if it computes them, otherwise
            the model has no head.
        freeze: patterns of parameters' names, such as ``features.0.*``; matching parameters are not trained. A model
            whose last layer is frozen has no head: strategies that change or compare class embeddings reject it.
        lora: the adapters to train instead of the network.
    """

    head: NameOrNumber | None
    freeze: Annotated[tuple[NameOrNumber, ...], Neutral(())]
    lora: Annotated[LoRA, Neutral(LoRA)]

    @property
    @abstractmethod
    def key(self) -> str:
        """The option and its name, for messages."""

    def adapt(
        self, network: torch.nn.Module, spec: Spec, inner: str = "", fresh: tuple[str, ...] | None = None
    ) -> torch.nn.Sequential:
        """The network as an encoder and a head.

        Args:
            network: maps encoded samples ``[batch, *spec.input_shape]`` to outputs ``[batch, *spec.output_shape]``; it
                is changed in place, and computes in float32 from then on.
            spec: spec of the dataset.
            inner: the part of the network to which the names in keys refer; empty: the whole network.
            fresh: children of that part that are trained besides adapters, because their weights are new; None: it is
                not known which are new, so that a head must be found, unless ``freeze`` has the last linear layer.

        Raises:
            InputError: there is no such layer or parameter, the layer does not compute the outputs, the network rejects
                the samples, or adapters would be trained around outputs that are new and would be frozen.
        """
        check_network(network.float(), spec, self.key)
        known = network.get_submodule(inner)
        for pattern in self.freeze:
            matching = [parameter for name, parameter in known.named_parameters() if fnmatchcase(name, pattern)]
            if not matching:
                names = [name for name, _ in known.named_parameters()]
                raise InputError(
                    f"model.freeze: no parameter of {self.key} matches {pattern!r}; allowed: patterns such as "
                    f"{', '.join(names[:3])} or {names[0].partition('.')[0]}.*"
                )
            for parameter in matching:
                parameter.requires_grad_(False)
        head = split_head(network, known, spec, self.key, self.head)
        if self.lora.rank is not None:
            last = [module for module in known.modules() if type(module) is torch.nn.Linear][-1:]
            chosen = any(not parameter.requires_grad for layer in last for parameter in layer.parameters())
            if fresh is None and isinstance(head, torch.nn.Identity) and not chosen:
                raise InputError(
                    f"model.lora.rank={self.lora.rank}: {self.key} has no linear layer that alone computes the outputs "
                    "and would be trained besides the adapters; allowed: another model, or null"
                )
            trained = [
                parameter
                for name, parameter in known.named_parameters()
                if name.startswith(fresh or ()) and parameter.requires_grad
            ]
            self.lora.insert(known)
            for parameter in trained:
                parameter.requires_grad_(True)
        return encoder_and_head(network, head)


def split_head(
    network: torch.nn.Module, known: torch.nn.Module, spec: Spec, key: str, head: str | None
) -> torch.nn.Linear | torch.nn.Identity:
    """Take the layer that computes the outputs out of a network, in place; an identity if none does, or it is frozen.

    Args:
        network: maps encoded samples to outputs.
        known: the part of it to which names refer.
        spec: spec of the dataset.
        key: the option and its name, for messages.
        head: the layer's name; None: the last linear layer, if it computes the outputs of a task with one output per
            sample.

    Raises:
        InputError: the named layer is not linear, is frozen, or does not compute the outputs.
    """
    if spec.task.per_symbol and head is None:
        return torch.nn.Identity()  # a sample's outputs are not one product with its embedding
    from fedrun.models.head_place import HeadPlace  # a class of torch, which this module does not load

    linear = [name for name, module in known.named_modules() if type(module) is torch.nn.Linear and name]
    name = head or (linear[-1] if linear else "")
    if name not in linear:
        if head is None:
            return torch.nn.Identity()
        raise InputError(f"model.head={head}: {key} has no such linear layer; allowed: {_listed(linear)}")
    layer = known.get_submodule(name)
    assert isinstance(layer, torch.nn.Linear)
    shared = sum(parameter is layer.weight for _, parameter in known.named_parameters(remove_duplicate=False)) > 1
    samples, random = random_samples(spec, 2), torch.Generator().manual_seed(0)
    tensors = [*network.parameters(), *network.buffers()]
    values = [tensor.data for tensor in tensors]
    with torch.no_grad():
        for tensor in tensors:
            tensor.data = _disturbed(tensor.data, random)
        # large outputs, which tanh or a clamp after the layer would change; its own may be zero
        for parameter in layer.parameters():
            parameter.data = 100 * torch.randn(parameter.shape, generator=random)
        trial = [tensor.data for tensor in tensors]
        try:
            whole = _outputs(network, samples, tensors, trial)
            known.set_submodule(name, HeadPlace())
            computes = all(
                embeddings.shape == (2, layer.in_features)
                and bool((layer(embeddings) - outputs).abs().max() <= 1e-4 * outputs.abs().max())
                for embeddings, outputs in zip(_outputs(network, samples, tensors, trial), whole, strict=True)
            )
        except Exception:  # of any kind: the same samples passed with the layer, so the rest needs it, as its weights
            computes = False
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value
    frozen = not all(parameter.requires_grad for parameter in layer.parameters())
    if computes and not shared and not frozen:
        return layer
    known.set_submodule(name, layer)
    if head is None:
        return torch.nn.Identity()
    if frozen:
        raise InputError(
            f"model.head={name}: is frozen by model.freeze; a frozen layer cannot be the head; allowed: null"
        )
    raise InputError(f"{key}: its outputs are not those of model.head={name}; name the layer that computes them")


def _disturbed(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Values near those of a tensor, of which none is a factor of 1 or a summand of 0; integers as they are."""
    if not tensor.is_floating_point():
        return tensor
    noise = 0.05 + 0.1 * torch.rand(tensor.shape, generator=random)
    return torch.where(tensor == 0, noise, tensor * (1 + noise))


def _outputs(
    network: torch.nn.Module, samples: torch.Tensor, tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The outputs in training and in evaluation mode, each with the same random numbers and values of its tensors."""
    outputs = []
    for training in (True, False):
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value.clone()  # a forward pass in training mode changes buffers
        network.train(training)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            outputs.append(network(samples))
    return outputs


def replace_batch_norm(network: torch.nn.Module) -> None:
    """Replace every BatchNorm by GroupNorm with two groups (one for an odd number of channels), in place.

    GroupNorm has no running statistics. Those of clients with different classes would differ (Hsieh et al., 2020).
    timm's BatchNorm layers may contain dropout and the activation, which stay.
    """
    modules = list(network.named_modules(remove_duplicate=False))  # a layer may be in several places
    replaced: dict[torch.nn.Module, torch.nn.Module] = {}
    for name, layer in modules:
        if not isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            continue
        if layer not in replaced:
            group_norm = torch.nn.GroupNorm(gcd(layer.num_features, GROUPS), layer.num_features, eps=layer.eps)
            inner = [getattr(layer, part, None) for part in ("drop", "act")]
            following = [module for module in inner if isinstance(module, torch.nn.Module)]
            replaced[layer] = torch.nn.Sequential(group_norm, *following) if following else group_norm
        network.set_submodule(name, replaced[layer])


def _listed(names: list[str]) -> str:
    return ", ".join(names[-8:]) or "none, as it has no linear layer"
