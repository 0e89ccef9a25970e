"""``model.safetensors``: the trained model, written and read as a PyTorch network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from fedrun.data.datasets.base import Spec
from fedrun.experiment.state import State
from fedrun.models.base import ModelConfig, encoder_and_head, new_network
from fedrun.models.lora_layout import merged
from fedrun.models.parallel_encoders import ParallelEncoders
from fedrun.models.saved_tensors import models_in, saved_tensors, tensors_of
from fedrun.strategies.phase import Phase
from fedrun.strategies.vectors import Vectors
from fedrun.system.atomic_file import atomic_write
from fedrun.system.errors import InputError


def save_model(phase: Phase, state: State, path: Path) -> None:
    """Write the global model of a state in its phase, with frozen parameters, under the network's own tensor names.

    After FedConcat's second phase this is the concatenated network. Tensors of several models have the prefixes
    ``models.M.``; the frozen parameters, which they share, have none.

    Raises:
        OSError: the file cannot be written.
    """
    from safetensors.torch import save

    network, frozen = phase.network, phase.network.frozen
    models = [merged(network.network, network.tensors(server.model)) for server in state.models]
    views: Vectors = {**phase.frozen_tensors, **models[0]}
    if len(models) > 1:
        several = {
            f"models.{number}.{name}": tensor
            for number, model in enumerate(models)
            for name, tensor in model.items()
            if tensor is not frozen.get(name)
        }
        views = {**frozen, **several}
    with atomic_write(path) as file:
        file.write(
            save({name: view.cpu().clone(memory_format=torch.contiguous_format) for name, view in views.items()})
        )


def load_network(path: Path, model: ModelConfig, spec: Spec, number: int | None = None) -> torch.nn.Sequential:
    """The network of a finished run in evaluation mode.

    Args:
        path: the file ``model.safetensors``.
        model: the run's model option.
        spec: the specification of the run's dataset.
        number: index of the model, for a run with several (clusters); None for a run with one.

    Returns:
        A network from encoded samples ``[batch, *spec.input_shape]`` to logits ``[batch, spec.classes]``.

    Raises:
        InputError: the file cannot be read, has no such model, or is another model's.
    """
    tensors = saved_tensors(path)
    count = models_in(tensors)
    if number is None and count > 1:
        raise InputError(f"{path}: has {count} models; name one: number=0 to number={count - 1}")
    if number not in (None, *range(count)):
        raise InputError(f"{path}: has no model {number}; allowed: 0 to {count - 1}")
    return network_of(model, spec, tensors_of(tensors, number or 0), path)


def network_of(model: ModelConfig, spec: Spec, tensors: Mapping[str, torch.Tensor], path: Path) -> torch.nn.Sequential:
    """The network with these tensors, in evaluation mode.

    Args:
        model: the run's model option.
        spec: the specification of the run's dataset.
        tensors: all parameters, and buffers, by name.
        path: the file with the tensors.

    Raises:
        InputError: the tensors are those of another model.
    """
    network = _network(model, spec, tensors)
    try:
        missing, _ = network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise InputError(f"{path}: is not of the run's model ({str(error).splitlines()[-1].strip()})") from None
    parameter_names = {name for name, _ in network.named_parameters()}
    if absent := (parameter_names & set(missing)) or tensors.keys() - network.state_dict().keys():
        raise InputError(f"{path}: is not of the run's model (tensor {min(absent)})")
    return network.eval()


def _network(model: ModelConfig, spec: Spec, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Sequential:
    """The network that has these tensors: the model's own, or FedConcat's with several of its encoders side by side."""
    with torch.random.fork_rng(devices=[]):
        network = new_network(model, spec)
        count = _encoders(tensors, network.state_dict())
        if count == 0:
            return network
        encoders = [new_network(model, spec).get_submodule("encoder") for _ in range(count)]
    classes, embedding = tensors["head.weight"].shape
    head = torch.nn.Linear(embedding, classes, bias="head.bias" in tensors)
    return encoder_and_head(ParallelEncoders(encoders), head)


def _encoders(tensors: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> int:
    """How many of a model's encoders FedConcat has put side by side; 0: the network is the model's own.

    The head's width gives their number. Names of tensors do not: the encoder of ``model=logistic`` has no tensors, and
    that of ``niid_simple_cnn`` may itself be several side by side.

    Args:
        tensors: those of the network.
        own: those of the model's own network.
    """
    if "head.weight" not in tensors or "head.weight" not in own:
        return 0
    width, own_width = tensors["head.weight"].shape[1], own["head.weight"].shape[1]
    is_own = width == own_width and tensors.keys() <= own.keys()
    return 0 if is_own or width % own_width else width // own_width
